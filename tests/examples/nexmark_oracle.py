"""What Nexmark's queries give over all events at once, in plain Spark SQL.

Nothing of it is Anabranch's, and it shares nothing with the streams but the generator. Of a query
that updates its rows, these are the last ones. Where bids are equal by price or time, what else
they hold decides which comes first, so that nothing depends on arrival.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples.nexmark import generator
from examples.nexmark.generator import Nexmark

_WINNERS = """
    select a.*, b.bidder, b.price, b.channel, b.at as bid_at
    from auction a join bid b on b.auction = a.id and b.at between a.at and a.expires
    qualify row_number() over (
        partition by a.id order by b.price desc, b.at, b.bidder, b.channel, b.extra
    ) = 1
"""

_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}
_COUNTS = ", ".join(
    f"count(case when {test} then 1 end) {rank}_bids" for rank, test in _RANKS.items()
)
_DISTINCT = ", ".join(
    f"count(distinct case when {test} then {of} end) {rank}_{of}s"
    for of in ("bidder", "auction")
    for rank, test in _RANKS.items()
)

QUERIES = {
    "q00": "select auction, bidder, price, at, extra from bid",
    "q01": "select auction, bidder, 0.908 * price price, at, extra from bid",
    "q02": "select auction, price from bid where auction % 123 = 0",
    "q03": """
        select p.name, p.city, p.state, a.id auction
        from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q04": f"select category, avg(price) price from ({_WINNERS}) group by category",
    "q05": """
        select auction, n, w.start window_start, w.end window_end
        from (
            select auction, window(at, '10 seconds', '2 seconds') w, count(*) n
            from bid group by auction, w
        )
        qualify n = max(n) over (partition by w)
    """,
    "q06": f"""
        select seller, id auction, avg(price) over (
            partition by seller order by expires, id rows between 9 preceding and current row
        ) price
        from ({_WINNERS})
    """,
    "q07": """
        select auction, bidder, price, at, extra
        from (select *, window(at, '10 seconds') w from bid)
        qualify price = max(price) over (partition by w)
    """,
    "q08": """
        select distinct p.id, p.name, p.w.start window_start
        from (select id, name, window(at, '10 seconds') w from person) p
        join (select seller, window(at, '10 seconds') w from auction) a
        on p.id = a.seller and p.w = a.w
    """,
    "q09": f"""
        select id auction, item, category, seller, expires, bidder, price, channel, bid_at
        from ({_WINNERS})
    """,
    "q11": """
        select bidder, count(*) n, min(at) window_start, max(at) + interval 10 seconds window_end
        from (
            select bidder, at, sum(opens) over (partition by bidder order by at) session
            from (
                select bidder, at, case
                    when at < lag(at) over (partition by bidder order by at) + interval 10 seconds
                    then 0 else 1
                end opens
                from bid
            )
        )
        group by bidder, session
    """,
    "q15": f"select date(at) day, {_COUNTS}, {_DISTINCT} from bid group by day",
    "q16": f"""
        select channel, date(at) day, max(date_format(at, 'HH:mm')) minute, {_COUNTS}, {_DISTINCT}
        from bid group by channel, day
    """,
    "q17": f"""
        select auction, date(at) day, {_COUNTS},
            min(price) least, max(price) greatest, avg(price) mean, sum(price) total
        from bid group by auction, day
    """,
    "q18": """
        select auction, bidder, price, channel, url, at, extra
        from bid
        qualify row_number() over (
            partition by auction, bidder order by at desc, price desc, channel, extra
        ) = 1
    """,
    "q19": """
        select auction, bidder, price, channel, url, at, extra, row_number() over (
            partition by auction order by price desc, at, bidder, channel, extra
        ) rank
        from bid
        qualify rank <= 10
    """,
    "q20": """
        select b.auction, bidder, price, channel, url, b.at, b.extra,
            item, description, initial_bid, reserve, a.at opened, expires, seller
        from bid b join auction a on b.auction = a.id
        where category = 10
    """,
}


def load_events(spark: SparkSession, directory: Path, settings: Nexmark, events: int) -> None:
    """Make tables ``person``, ``auction`` and ``bid`` of the first events."""
    numbers = np.arange(events)
    tables: dict[str, pa.Table] = {
        "person": generator.people(settings, numbers[generator.is_person(numbers)]),
        "auction": generator.auctions(settings, numbers[generator.is_auction(numbers)]),
        "bid": generator.bids(settings, numbers[generator.is_bid(numbers)]),
    }
    for name, table in tables.items():
        pq.write_table(table, directory / f"{name}.parquet")
        spark.read.parquet(str(directory / f"{name}.parquet")).createOrReplaceTempView(name)


def expected(spark: SparkSession, query: str) -> pa.Table:
    """The rows of a query, in no order."""
    return spark.sql(QUERIES[query]).toArrow()
