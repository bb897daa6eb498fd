"""The part of the report about rescaling: a table, and a picture of every step. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.cases import WAYS
from benchmarks.measure import Fact
from benchmarks.results import Results
from benchmarks.steps_picture import steps_picture
from benchmarks.targets import rescale_runs
from benchmarks.text import count, milliseconds, ratio_text, table

PICTURE = "rescale-latency.svg"

_NAMES = {"rescale-1m": "1 M keys", "rescale-100k": "100 k keys"}


def rescaling(results: Results) -> Iterable[str]:
    """The section of the report, nothing where no rescale was measured."""
    found = [each for name in _NAMES for each in results.workload(name)]
    if not found:
        return
    yield "## From 2 to 4 workers while rows flow"
    yield (
        "Steps of equal size one after the other; when Java has compiled most of what they run, 4 "
        "workers are asked for. Each line is a run of its own, with a base of so many keys loaded "
        "before. The longest step is that "
        "between the request and the first step with all new workers, beside the longest of as "
        "many steps just before. Every worker has a home of its own: what moves is copied. "
        "Spark's own way is to stop the query, repartition its state (RocksDB) and start it "
        "again: the outage is from the end of the last batch before to the "
        "end of the first one after."
    )
    yield _runs(results)
    yield _offline(results)
    if picture(results):
        what = "The time of every step before, during and after a rescale, for three settings."
        yield f"![{what}]({PICTURE})"


def _runs(results: Results) -> str:
    times = ("", "longest step, ms", "before, ms", "ratio", "longest gap, ms", "steps")
    heads = (*times, "bins moved", "MiB held by them", "MiB copied")
    rows = []
    for workload, keys in _NAMES.items():
        for policy in WAYS:
            for run in rescale_runs(results, f"{workload}/{policy}"):
                longest, usual = float(run["longest step"]), float(run["longest usual step"])
                rows.append(
                    (
                        f"`{policy}`, {keys}",
                        milliseconds(longest),
                        milliseconds(usual),
                        ratio_text(longest / usual),
                        milliseconds(float(run["longest gap"])),
                        count(float(run["steps"])),
                        count(float(run["bins"])),
                        _mib(run["bytes"]),
                        _mib(run.get("copied")),
                    )
                )
    known = len(heads) if any(row[-1] for row in rows) else len(heads) - 1
    return table(heads[:known], [row[:known] for row in rows], right=tuple(range(1, known)))


def _mib(size: Fact | None) -> str:
    """Bytes; older results do not say what was copied."""
    return "" if size is None else f"{float(size) / 2**20:.1f}"


def _offline(results: Results) -> str:
    rows = []
    for workload, keys in _NAMES.items():
        outcome = getattr(results.find(f"{workload}/offline"), "outcome", None)
        gaps = [float(run["longest gap"]) for run in rescale_runs(results, f"{workload}/batched")]
        if outcome is None or not gaps:
            continue
        outage, ours = float(outcome.info["outage"]), sorted(gaps)[len(gaps) // 2]
        rows.append((keys, f"{outage:.1f}", f"{ours:.2f}", f"1/{outage / ours:.0f}"))
    heads = ("", "outage of Spark's own way, s", "longest gap of ours, s", "ratio")
    return table(heads, rows, right=(1, 2, 3)) if rows else ""


def picture(results: Results) -> str:
    """The steps of the three settings, as SVG; nothing where none was measured."""
    found = [results.find(f"rescale-1m/{policy}") for policy in WAYS]
    return steps_picture([each for each in found if each is not None and each.batches()])
