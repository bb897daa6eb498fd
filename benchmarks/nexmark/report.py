"""Nexmark in the report: the queries, what windows cost, and how long results take. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.cases import QUERIES
from benchmarks.results import Result, Results
from benchmarks.text import count, milliseconds, per_second, ratio_text, table

TITLES = {
    "q05": "5: auctions with the most bids, sliding windows",
    "q07": "7: highest bids, tumbling windows",
    "q08": "8: new people who sell, join of windows",
    "q09": "9: winning bids, timers",
    "q11": "11: visits, session windows",
    "q15": "15: distinct bidders and auctions per day",
    "q16": "16: the same per channel and day",
    "q17": "17: counts and prices per auction and day",
    "q18": "18: last bid per bidder and auction",
}
THEIRS = {"hdfs": "native, HDFS-backed", "transform-row": "`transformWithState` (Row)"}

METHOD = """\
The programs of `examples/nexmark`, 100 k events a batch at 10,000 a second of event time, with a
lateness of 4 s. Both sides read people, auctions and bids from Parquet files of their own, so that
rows are those of the kinds that a query reads. Structured Streaming says each query as its own
operators do best and writes nothing; where it cannot say all of it, it is asked for less: one of
several auctions or bids that share a maximum (5, 7), sets in place of `count(distinct …)`
(15, 16)."""


def nexmark(results: Results) -> Iterable[str]:
    """The section of the report, nothing where none of it was measured."""
    if not any(each.workload.startswith("nexmark-") for each in results.results):
        return
    yield "## Nexmark"
    yield METHOD
    yield _queries(results)
    yield from _waits(results)
    yield from _due(results)


def _queries(results: Results) -> str:
    rows = []
    for query in QUERIES:
        for theirs in results.workload(f"nexmark-{query}"):
            ours = results.find(f"nexmark-{query}/ours")
            if theirs.subject in THEIRS and ours is not None:
                rows.append((TITLES[query], *_beside(ours, theirs), THEIRS[theirs.subject]))
    heads = ("query", "Anabranch, rows/s", "min–max", "theirs", "min–max", "Anabranch is", "beside")
    return table(heads, rows, right=(1, 2, 3, 4, 5))


def _beside(ours: Result, theirs: Result) -> tuple[str, ...]:
    mine, other = ours.rates(), theirs.rates()
    ratio = ratio_text(mine.median / other.median) if mine and other else ""
    return (*_rate(ours), *_rate(theirs), ratio)


def _rate(result: Result) -> tuple[str, str]:
    rate = result.rates()
    if rate is None:
        return result.failure, ""
    return per_second(rate.median), f"{per_second(rate.low)}–{per_second(rate.high)}"


def _waits(results: Results) -> Iterable[str]:
    names = {
        "nexmark-closing/ours": "closing row to published result, Anabranch",
        "nexmark-closing/hdfs": "closing row to published result, Structured Streaming",
        "nexmark-window/tumbling": "step of `aggregate` by tumbling windows, 100 k events",
        "nexmark-window/total": "step of the same `aggregate` without windows",
    }
    rows = []
    for name, what in names.items():
        result = results.find(name)
        took = None if result is None else result.times()
        if took is not None:
            spread = f"{milliseconds(took.low)}–{milliseconds(took.high)}"
            rows.append((what, milliseconds(took.median), spread, count(took.count)))
    if rows:
        yield (
            "From the beginning of the batch with the row that closes a window, 1,000 events a "
            "batch, to its result in Parquet files; and what windows cost:"
        )
        yield table(("", "ms, median", "min–max", "times"), rows, right=(1, 2, 3))


def _due(results: Results) -> Iterable[str]:
    result = results.find("nexmark-due/ours")
    if result is None or result.outcome is None:
        return
    info = result.outcome.info
    many, few = (
        f"{milliseconds(float(info[f'{name}: median']))} ms among "
        f"{count(float(info[f'{name}: waiting']))}"
        for name in ("many", "few")
    )
    yield f"Opening a state and finding the 1,000 rows that fall due takes {many}, {few}."
