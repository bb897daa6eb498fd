"""Spark Structured Streaming: Nexmark's queries, as its own operators say them best.

Where it cannot say the whole of a query it is asked for less: of several auctions or bids that
share a maximum, queries 5 and 7 give one. Counts of distinct values are those of sets, because a
stream has no ``count(distinct …)``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.child import Spec, case
from benchmarks.data import FILES_PER_BATCH
from benchmarks.measure import Outcome
from benchmarks.nexmark.data import SCHEMAS
from benchmarks.nexmark.winning_bid import WINNER, WinningBid
from benchmarks.structured import run_to_end, session
from examples.nexmark.events import LATENESS
from examples.nexmark.price_ranks import RANKS

UPDATING = ("q15", "q16", "q17", "q18")
"""Queries that tell of every change; the others tell of what is over."""

Streams = Callable[[str], DataFrame]
"""Gives people, auctions or bids."""


def measure(spec: Spec) -> Outcome:
    """Run a query to the end of its input, or until time is up."""
    spark = session(spec)
    name = spec.text("query")
    rows = QUERIES[name](streams(spark, Path(spec.data)))
    return run_to_end(
        rows.writeStream.outputMode("update" if name in UPDATING else "append").format("noop"), spec
    )


def streams(spark: SparkSession, data: Path) -> Streams:
    """The files of each kind as a stream with a watermark."""

    def events(kind: str) -> DataFrame:
        files = spark.readStream.schema(SCHEMAS[kind]).option("maxFilesPerTrigger", FILES_PER_BATCH)
        return files.parquet(str(data / kind)).withWatermark("at", LATENESS)

    return events


def q05(events: Streams) -> DataFrame:
    """The auction with the most bids of the last ten seconds."""
    windows = f.window("at", "10 seconds", "2 seconds")
    counts = events("bid").groupBy(windows, "auction").count()
    ends = f.window(f.window_time("window"), "2 seconds")
    return counts.groupBy(ends).agg(f.max("count"), f.max_by("auction", "count"))


def q07(events: Streams) -> DataFrame:
    """The highest bid of every ten seconds."""
    bid = f.struct("auction", "bidder", "price", "at", "extra")
    return events("bid").groupBy(f.window("at", "10 seconds")).agg(f.max_by(bid, "price"))


def q08(events: Streams) -> DataFrame:
    """People who joined and opened an auction within the same ten seconds."""
    windows = f.window("at", "10 seconds").alias("window")
    people = events("person").select("id", "name", windows)
    sellers = events("auction").select(f.col("seller").alias("id"), windows)
    return people.join(sellers, ["id", "window"]).dropDuplicates(["id", "window"])


def q09(events: Streams) -> DataFrame:
    """The winning bid of every auction, by a processor of one's own."""
    times = ("at", "unix_micros(at) as us")
    auctions = events("auction").selectExpr(
        *("'auction' as kind", "id as auction", "item", "category", "seller", *times),
        "unix_micros(expires) as expires",
    )
    bids = events("bid").selectExpr(
        *("'bid' as kind", "auction", "bidder", "price", "channel", "extra", *times)
    )
    keyed = auctions.unionByName(bids, allowMissingColumns=True).groupBy("auction")
    return keyed.transformWithState(WinningBid(), WINNER, "Append", "EventTime")


def q11(events: Streams) -> DataFrame:
    """How often people bid before they rest for ten seconds."""
    return events("bid").groupBy(f.session_window("at", "10 seconds"), "bidder").count()


def q15(events: Streams) -> DataFrame:
    """Bids, bidders and auctions of each day, by price."""
    bids = events("bid").groupBy(f.to_date("at"))
    return bids.agg(*_counts(), *_distinct("bidder"), *_distinct("auction"))


def q16(events: Streams) -> DataFrame:
    """Bids, bidders and auctions of each channel and day, by price."""
    bids = events("bid").groupBy("channel", f.to_date("at"))
    minute = f.max(f.date_format("at", "HH:mm"))
    return bids.agg(minute, *_counts(), *_distinct("bidder"), *_distinct("auction"))


def q17(events: Streams) -> DataFrame:
    """The bids of each auction and day, by price, and their prices."""
    bids = events("bid").groupBy("auction", f.to_date("at"))
    return bids.agg(*_counts(), *(g("price") for g in (f.min, f.max, f.avg, f.sum)))


def q18(events: Streams) -> DataFrame:
    """The last bid of every bidder for every auction."""
    bid = f.struct("price", "channel", "url", "extra")
    return events("bid").groupBy("auction", "bidder").agg(f.max("at"), f.max_by(bid, "at"))


def _counts() -> list[Column]:
    return [f.count_if(f.expr(condition)) for condition in RANKS.values()]


def _distinct(of: str) -> list[Column]:
    return [
        f.size(f.collect_set(f.when(f.expr(condition), f.col(of)))) for condition in RANKS.values()
    ]


QUERIES = {query.__name__: query for query in (q05, q07, q08, q09, q11, q15, q16, q17, q18)}


if __name__ == "__main__":
    case(measure)
