"""Windows on a real Spark, from rows out of order to published windows, against plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.stream import Stream
from tests.spark.running import bag, completed, failure, rows_of, stopped_after

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "auction bigint, bidder string, price int, at timestamp"
BEGIN = dt.datetime(2024, 2, 29, 23, 59, 30, tzinfo=dt.UTC)
Pages = list[list["Bid"]]


class Bid(NamedTuple):
    auction: int
    bidder: str | None
    price: int
    at: dt.datetime


def seconds(count: float) -> dt.timedelta:
    return dt.timedelta(seconds=count)


def pages(seed: int, steps: int = 5) -> Pages:
    """Bids that are up to twenty seconds out of order; nobody's price comes twice."""
    chance = random.Random(seed)
    prices = iter(chance.sample(range(1000), steps * 40))
    return [
        [
            Bid(
                chance.randrange(4),
                chance.choice(["ada", "bob", None]),
                next(prices),
                BEGIN + seconds(12 * step + chance.choice([0, 3, 7.5, chance.random() * 20])),
            )
            for _ in range(40)
        ]
        for step in range(steps)
    ]


def bids(flow: ab.Dataflow, given: Pages, **options: Any) -> Stream:
    source = ab.ScriptedSource(SCHEMA, [*given, ab.EOF])
    return flow.source("bids", source).assign_timestamps("at", **options)


def windows_of(at: dt.datetime, length: int, every: int) -> list[tuple[dt.datetime, dt.datetime]]:
    """Every window that holds a time."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    first = int((at - epoch).total_seconds()) // every
    starts = [epoch + seconds(every * n) for n in range(first - length, first + 2)]
    return [(s, s + seconds(length)) for s in starts if s <= at < s + seconds(length)]


def grouped(rows: list[Bid], length: int, every: int) -> dict[Any, list[Bid]]:
    found = defaultdict(list)
    for bid in rows:
        for window in windows_of(bid.at, length, every):
            found[bid.auction, *window].append(bid)
    return found


def sessions(rows: list[Bid], gap: int) -> dict[Any, list[Bid]]:
    found: dict[Any, list[list[Bid]]] = defaultdict(list)
    for bid in sorted(rows, key=lambda bid: bid.at):
        mine = found[bid.bidder]
        if mine and bid.at < mine[-1][-1].at + seconds(gap):
            mine[-1].append(bid)
        else:
            mine.append([bid])
    return {
        (bidder, one[0].at, one[-1].at + seconds(gap)): one
        for bidder, all_of in found.items()
        for one in all_of
    }


def spread(table: pa.Table) -> pa.Table:
    """The lowest and the highest bid of each window, in one row each."""
    prices: dict[int, list[int]] = defaultdict(list)
    names = {}
    for row in table.to_pylist():
        prices[row["_window"]].append(row["price"])
        names[row["_window"]] = row["auction"]
    cells = [(w, names[w], which(all_of)) for w, all_of in prices.items() for which in (min, max)]
    number, auction, price = zip(*cells, strict=True)
    return pa.table(
        {
            "_window": pa.array(number, pa.int64()),
            "auction": pa.array(auction, pa.int64()),
            "price": pa.array(price, pa.int32()),
        }
    )


def test_every_operator_over_windows(tmp_path: Path) -> None:
    """All in one dataflow: what has a window comes out once, what has none with each change."""
    given = pages(1)
    rows = [bid for page in given for bid in page]
    flow = ab.Dataflow("auctions")
    timed = bids(flow, given, lateness="1 minute")
    by_auction = timed.key_distribute("by-auction", "auction")
    ten, slide = ab.tumbling("10 seconds"), ab.sliding("10 seconds", every="5 seconds")
    made = {
        "counts": by_auction.window(ten).aggregate("counts", n="count(*)", top="max(price)"),
        "changes": by_auction.window(slide).aggregate("changes", emit="changes", n="count(*)"),
        "best": by_auction.window(ten)
        .top("best", 2, by="price desc")
        .select("auction", "price", "window_end", "rank"),
        "spread": by_auction.window(ten).apply(
            "spread", spread, output="auction bigint, price int"
        ),
        "dearest": by_auction.top("dearest", 1, by="price desc").select("auction", "price"),
        "visits": timed.key_distribute("by-bidder", "bidder")
        .window(ab.session("3 seconds"))
        .aggregate("visits", n="count(*)", sum="sum(price)"),
        # Two regions in a row: the busiest auctions of each window.
        "hottest": by_auction.window(slide)
        .aggregate("heat", n="count(*)")
        .key_distribute("by-window", w="window_end")
        .window(ab.tumbling("5 seconds"))
        .top("hottest", 1, by="n desc", ties=True),
    }
    sinks = {name: ab.MemorySink() for name in made}
    for name, stream in made.items():
        stream.sink(f"{name}-out", sinks[name])
    completed(flow, tmp_path / "state", workers=3)
    found = {name: rows_of(pa.concat_tables(sink.steps().values())) for name, sink in sinks.items()}

    tumbling, sliding = grouped(rows, 10, 10), grouped(rows, 10, 5)
    assert bag(found["counts"]) == bag(
        (*name, len(inside), max(bid.price for bid in inside)) for name, inside in tumbling.items()
    )
    # The last value of each window is that of all its rows.
    last = {row[:3]: row[3] for row in found["changes"]}
    assert last == {name: len(inside) for name, inside in sliding.items()}
    assert bag(found["best"]) == bag(
        (name[0], bid.price, name[2], rank)
        for name, inside in tumbling.items()
        for rank, bid in enumerate(sorted(inside, key=lambda bid: -bid.price)[:2], start=1)
    )
    assert bag(found["spread"]) == bag(
        (name[0], which(bid.price for bid in inside))
        for name, inside in tumbling.items()
        for which in (min, max)
    )
    assert {row[0]: row[1] for row in found["dearest"]} == {
        auction: max(bid.price for bid in rows if bid.auction == auction) for auction in range(4)
    }
    assert bag(found["visits"]) == bag(
        (*name, len(inside), sum(bid.price for bid in inside))
        for name, inside in sessions(rows, 3).items()
    )
    most: dict[Any, int] = defaultdict(int)
    for name, inside in sliding.items():
        most[name[2]] = max(most[name[2]], len(inside))
    assert bag(found["hottest"]) == bag(
        (*name, len(inside), 1) for name, inside in sliding.items() if len(inside) == most[name[2]]
    )


def test_each_row_is_in_its_window_or_late(tmp_path: Path) -> None:
    given = pages(2)
    flow = ab.Dataflow("auctions")
    shown, late = ab.MemorySink(), ab.MemorySink()
    counts = (
        bids(flow, given)
        .key_distribute("by-auction", "auction")
        .window(ab.tumbling("4 seconds", offset="1 second"))
        .aggregate("counts", n="count(*)", prices="collect_list(price)", order_by="price")
    )
    counts.sink("counts-out", shown)
    counts.late.sink("late-out", late)
    completed(flow, tmp_path / "state")
    windows = rows_of(pa.concat_tables(shown.steps().values()))
    behind = rows_of(pa.concat_tables(late.steps().values()))
    assert behind, "some rows must be late, or this shows nothing"
    assert windows
    in_time = [price for row in windows for price in row[4]]
    every = [bid for page in given for bid in page]
    assert sorted([*in_time, *(row[2] for row in behind)]) == sorted(bid.price for bid in every)
    for auction, bidder, price, at, frontier in behind:
        assert Bid(auction, bidder, price, at) in every
        assert at < frontier
    for auction, start, end, count, prices in windows:
        assert count == len(prices)
        assert (end - start, start.second % 4) == (seconds(4), 1)
        for price in prices:
            (bid,) = (bid for bid in every if bid.price == price)
            assert bid.auction == auction
            assert start <= bid.at < end


def open_windows(window: Any) -> ab.Dataflow:
    flow = ab.Dataflow("auctions")
    source = ab.ScriptedSource(SCHEMA, pages(3)[:2])
    flow.source("bids", source).assign_timestamps("at").key_distribute(
        "by-auction", "auction"
    ).window(window).aggregate("counts", n="count(*)").sink("out", ab.MemorySink())
    return flow


def test_open_windows_are_seen_and_stay_over_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    pipeline = stopped_after(3, open_windows(ab.tumbling("10 seconds")), state)
    kept = pipeline.state_table("counts")
    assert kept.column_names == ["auction", "window_start", "n"]
    latest = max(bid.at for page in pages(3)[:2] for bid in page)
    starts = kept.column("window_start").to_pylist()
    assert starts
    assert all(start + seconds(10) > latest for start in starts)
    error = failure(open_windows(ab.tumbling("5 seconds")), state)
    assert error.code == "directory.changed_dataflow"
    assert "over tumbling(5000000, offset=0)" in str(error)
    assert failure(open_windows(ab.session("10 seconds")), state).code == error.code
