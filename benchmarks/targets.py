"""What was promised, and whether the run kept it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.measure import Fact
from benchmarks.results import Result, Results


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio that should be at least (or at most) so much.

    ``ratio`` finds it in a run, None where it was not measured. ``profile`` names the profile
    that explains a miss.
    """

    name: str
    what: str
    reference: str
    bound: float
    at_least: bool
    ratio: Callable[[Results], float | None]
    profile: str = ""

    def kept(self, ratio: float) -> bool:
        """Whether this ratio is good enough."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound


def rate_ratio(ours: str, theirs: str) -> Callable[[Results], float | None]:
    """How many times as many rows per second, by the median batch."""

    def ratio(results: Results) -> float | None:
        mine, other = _result(results, ours).rates(), _result(results, theirs).rates()
        return mine.median / other.median if mine and other else None

    return ratio


def time_ratio(ours: str, theirs: str) -> Callable[[Results], float | None]:
    """How many times as long, by the median batch."""

    def ratio(results: Results) -> float | None:
        mine, other = _result(results, ours).times(), _result(results, theirs).times()
        return mine.median / other.median if mine and other else None

    return ratio


def held_ratio(results: Results) -> float | None:
    """Mean step time, merges included, with many keys held over that with few."""
    outcome = _result(results, "held/ours").outcome
    if outcome is None:
        return None
    return float(outcome.info["many: mean"]) / float(outcome.info["few: mean"])


def due_ratio(results: Results) -> float | None:
    """Finding what falls due among many that wait over finding it among few."""
    outcome = _result(results, "nexmark-due/ours").outcome
    if outcome is None:
        return None
    return float(outcome.info["many: median"]) / float(outcome.info["few: median"])


def longest_step_ratio(results: Results) -> float | None:
    """The longest step of a rescale over the longest of as many before it: the median run."""
    runs = rescale_runs(results, "rescale-1m/batched")
    ratios = [float(r["longest step"]) / float(r["longest usual step"]) for r in runs]
    return median(ratios) if ratios else None


def gap_ratio(keys: str) -> Callable[[Results], float | None]:
    """The longest gap between outputs over the outage of Spark's own way: the median run."""

    def ratio(results: Results) -> float | None:
        runs = rescale_runs(results, f"rescale-{keys}/batched")
        theirs = _result(results, f"rescale-{keys}/offline").outcome
        if theirs is None or not runs:
            return None
        return median(float(run["longest gap"]) for run in runs) / float(theirs.info["outage"])

    return ratio


def rescale_runs(results: Results, name: str) -> list[dict[str, Fact]]:
    """What each run of a case of rescaling came to."""
    outcome = _result(results, name).outcome
    if outcome is None:
        return []
    found: list[dict[str, Fact]] = []
    for number in range(1, int(outcome.info["runs"]) + 1):
        start = f"{number}: "
        info = outcome.info.items()
        found.append({n.removeprefix(start): v for n, v in info if n.startswith(start)})
    return found


def _result(results: Results, name: str) -> Result:
    workload, _, subject = name.partition("/")
    return results.find(name) or Result(workload, subject, 0)


def _faster(ours: str, theirs: str, what: str, reference: str, bound: float) -> Target:
    workload = ours.partition("/")[0]
    kind, _, stream = workload.partition("-")
    return Target(
        f"{workload}-{theirs.partition('/')[2]}",
        what,
        reference,
        bound,
        True,
        rate_ratio(ours, theirs),
        f"profile/{kind}-{stream.removesuffix('-10k-keys')}",
    )


def _query(query: str, reference: str, bound: float) -> Target:
    """How much faster a query of Nexmark is."""
    theirs = "transform-row" if reference == ROW else "hdfs"
    workload = f"nexmark-{query}"
    return Target(
        f"{workload}-{theirs}",
        f"Nexmark {query.replace('q0', 'q')}",
        reference,
        bound,
        True,
        rate_ratio(f"{workload}/ours", f"{workload}/{theirs}"),
        f"nexmark-profile/{query}",
    )


HDFS, ROCKSDB = "Structured Streaming, HDFS-backed", "Structured Streaming, RocksDB"
ROW, PANDAS = "transformWithState (Row)", "transformWithStateInPandas"
NATIVE = "native aggregation, HDFS-backed"
AGGREGATE, MAP = "`aggregate`", "`stateful_map`"

TARGETS = (
    _faster("aggregate-100k/ours", "aggregate-100k/hdfs", f"{AGGREGATE}, 100 k rows", HDFS, 3.0),
    _faster(
        "aggregate-100k/ours", "aggregate-100k/rocksdb", f"{AGGREGATE}, 100 k rows", ROCKSDB, 3.0
    ),
    _faster("aggregate-1m/ours", "aggregate-1m/hdfs", f"{AGGREGATE}, 1 M rows", HDFS, 2.2),
    _faster("aggregate-1m/ours", "aggregate-1m/rocksdb", f"{AGGREGATE}, 1 M rows", ROCKSDB, 4.5),
    _faster("map-100k/ours", "map-100k/transform-row", f"{MAP}, 100 k rows", ROW, 40.0),
    _faster("map-100k/ours", "map-100k/transform-pandas", f"{MAP}, 100 k rows", PANDAS, 150.0),
    _faster("map-100k/ours", "aggregate-100k/hdfs", f"{MAP}, 100 k rows", NATIVE, 1.4),
    _faster("map-1m/ours", "aggregate-1m/hdfs", f"{MAP}, 1 M rows", NATIVE, 1.4),
    _faster(
        "map-1m-10k-keys/ours",
        "map-1m-10k-keys/transform-row",
        f"{MAP}, 1 M rows over 10 k keys",
        ROW,
        40.0,
    ),
    _faster(
        "map-1m-10k-keys/ours",
        "map-1m-10k-keys/transform-pandas",
        f"{MAP}, 1 M rows over 10 k keys",
        PANDAS,
        150.0,
    ),
    _faster(
        "map-1m-10k-keys/ours",
        "map-1m-10k-keys/hdfs",
        f"{MAP}, 1 M rows over 10 k keys",
        NATIVE,
        1.4,
    ),
    Target(
        "latency-hdfs",
        "step latency, 1,000 rows",
        HDFS,
        0.4,
        False,
        time_ratio("latency/ours", "latency/hdfs"),
        "profile/aggregate-1k",
    ),
    Target(
        "latency-rocksdb",
        "step latency, 1,000 rows",
        ROCKSDB,
        0.4,
        False,
        time_ratio("latency/ours", "latency/rocksdb"),
        "profile/aggregate-1k",
    ),
    Target(
        "held",
        "step with 10 M keys held, merges included",
        "same batch with 100 k held",
        1.15,
        False,
        held_ratio,
        "profile/aggregate-100k",
    ),
    Target(
        "rescale-step",
        "longest step while 1 M keys go from 2 to 4 workers",
        "longest of as many steps before",
        1.25,
        False,
        longest_step_ratio,
        "profile/aggregate-100k",
    ),
    *(
        Target(
            f"rescale-gap-{keys}",
            f"longest gap between outputs, {what} from 2 to 4",
            "outage of Spark's own way: stop, repartition, start",
            1 / 30,
            False,
            gap_ratio(keys),
            "profile/aggregate-100k",
        )
        for keys, what in (("1m", "1 M keys"), ("100k", "100 k keys"))
    ),
    *(_query(query, HDFS, 3.0) for query in ("q05", "q08", "q17", "q18")),
    _query("q11", HDFS, 4.0),
    _query("q07", HDFS, 1.5),
    _query("q09", ROW, 5.0),
    Target(
        "nexmark-closing-hdfs",
        "row that closes a window to published result, steps of 1,000 events",
        HDFS,
        0.5,
        False,
        time_ratio("nexmark-closing/ours", "nexmark-closing/hdfs"),
        "nexmark-profile/q05",
    ),
    Target(
        "nexmark-window",
        "tumbling `aggregate`, 100 k events",
        "the same without a window",
        1.25,
        False,
        time_ratio("nexmark-window/tumbling", "nexmark-window/total"),
        "nexmark-profile/q05",
    ),
    Target(
        "nexmark-due",
        "finding 1 k due among 10 M that wait",
        "among 10 k that wait",
        2.0,
        False,
        due_ratio,
        "nexmark-profile/q11",
    ),
)
