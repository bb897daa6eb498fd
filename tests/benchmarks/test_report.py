"""Targets and the document, from results made up by hand."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import chosen
from benchmarks.cases import cases
from benchmarks.measure import Batch, Fact, Outcome
from benchmarks.remarks import REMARKS
from benchmarks.report import LABELS, WORKLOADS, render
from benchmarks.rescale_report import PICTURE, picture
from benchmarks.results import Result, Results
from benchmarks.sizes import FULL, QUICK
from benchmarks.steps_picture import BAND, LEFT, RIGHT, WIDTH
from benchmarks.targets import TARGETS, held_ratio, rate_ratio


def result(name: str, seconds: float, rows: int = 100_000) -> Result:
    workload, _, subject = name.partition("/")
    batches = tuple(Batch(rows, seconds * scale) for scale in (50.0, 0.9, 1.0, 1.1))
    return Result(workload, subject, 1, Outcome(batches, 53.0 * seconds))


def run(*results: Result) -> Results:
    return Results("full", {"processor": "an abacus"}, results)


def test_ratio_is_of_the_median_batches_after_the_warm_up() -> None:
    found = run(result("aggregate-100k/ours", 0.25), result("aggregate-100k/hdfs", 1.0))
    assert rate_ratio("aggregate-100k/ours", "aggregate-100k/hdfs")(found) == pytest.approx(4.0)


def test_a_kept_a_missed_and_an_unmeasured_target() -> None:
    text = render(
        run(
            result("aggregate-100k/ours", 0.25),
            result("aggregate-100k/hdfs", 1.0),
            Result("aggregate-100k", "rocksdb", 1, failure="failed: no disk"),
            result("latency/ours", 0.5),
            result("latency/hdfs", 1.0),
        )
    )
    hdfs, rocksdb = "Structured Streaming, HDFS-backed", "Structured Streaming, RocksDB"
    assert f"| `aggregate`, 100 k rows | {hdfs} | ≥ 3.0× | 4.0× | ✓ |" in text
    assert f"| `aggregate`, 100 k rows | {rocksdb} | ≥ 3.0× | not measured |  |" in text
    assert f"| step latency, 1,000 rows | {hdfs} | ≤ 0.40× | 0.50× | ✗ missed |" in text
    assert "- aggregate-100k/rocksdb: failed: no disk" in text
    assert "an abacus" in text


def test_a_missed_target_says_where_the_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = dict.fromkeys(("plan", "build", "read", "settle", "commit", "after"), 0.1)
    parts |= {"spark": 1.0, "tasks": 0.4, "write": 0.3, "rest": 0.1}
    profiled = Result("profile", "aggregate-1k", 0, Outcome((Batch(1, 2.0, parts),), 2.0))
    slow = run(result("latency/ours", 0.5), result("latency/hdfs", 1.0), profiled)
    told = next(line for line in render(slow).splitlines() if line.startswith("- step latency"))
    assert "scheduling, collect 50 %; tasks: write the run: sort, merge, encode, sync 15 %" in told
    monkeypatch.setitem(REMARKS, "latency-hdfs", "somebody sleeps.")
    assert "- step latency, 1,000 rows, beside Structured Streaming, HDFS-backed: somebody" in (
        render(slow)
    )


def test_held_keys_compare_mean_steps() -> None:
    names = ["mean", "median", "low", "high", "lookup", "write"]
    names += ["merge, longest", "merge, all steps"]
    info: dict[str, Fact] = {f"many: {name}": 0.36 for name in names}
    info |= {f"few: {name}": 0.3 for name in names}
    info |= {"steps": 70, "base files": 5, "base merged after": "70 steps"}
    found = run(Result("held", "ours", 0, Outcome((Batch(1, 1.0),), 1.0, False, info)))
    assert held_ratio(found) == pytest.approx(1.2)
    assert "| step, mean (merges included) | 360 | 300 | 1.20× |" in render(found)


def test_numbers_of_the_long_run_appear() -> None:
    soak: dict[str, Fact] = {"steps": 20000, "when": "today", "early: driver": 100 * 2.0**20}
    soak |= {"late: driver": 102 * 2.0**20}
    text = render(run(), soak)
    assert "20,000 steps" in text
    assert "| driver | 100.0 | 102.0 | 1.02× |" in text


def test_no_batch_done_is_said() -> None:
    outcome = Outcome((Batch(100_000, 100.0),), 100.0, True, {"unfinished": "yes"})
    text = render(run(Result("map-100k", "transform-pandas", 1, outcome)))
    assert "| 1.0 k | 1.0 k–1.0 k | 1.0 k | 1 (not one was done: less than this) |" in text


def rescale(name: str, seconds: float, gap: float, copied: float | None = None) -> Result:
    workload, _, subject = name.partition("/")
    batches = tuple(Batch(100, 0.2, {"during": float(4 <= n < 6)}) for n in range(10))
    info: dict[str, Fact] = {"runs": 1, "1: longest step": seconds, "1: longest usual step": 0.2}
    info |= {"1: longest gap": gap, "1: steps": 2, "1: bins": 8, "1: keys": 9, "1: bytes": 2**20}
    info |= {} if copied is None else {"1: copied": copied}
    return Result(workload, subject, 0, Outcome(batches, 2.0, False, info))


def offline(name: str, outage: float) -> Result:
    workload, _, subject = name.partition("/")
    return Result(workload, subject, 0, Outcome((Batch(1, 1.0),), 9.0, False, {"outage": outage}))


def made_up(name: str) -> Result:
    """A result of the kind that the case gives."""
    if name.startswith("nexmark-due"):
        info: dict[str, Fact] = {"many: median": 0.03, "few: median": 0.02}
        info |= {"many: waiting": 10_000_000, "few: waiting": 10_000}
        return Result("nexmark-due", "ours", 0, Outcome((Batch(1_000, 0.03),), 1.0, False, info))
    if not name.startswith("rescale"):
        return result(name, 1.0)
    return offline(name, 9.0) if name.endswith("offline") else rescale(name, 0.3, 0.2)


@pytest.mark.parametrize("sizes", [FULL, QUICK])
def test_every_target_and_label_refers_to_cases_that_exist(sizes: object) -> None:
    every = cases(QUICK if sizes is QUICK else FULL)
    names = {case.name for case in every}
    assert len(names) == len(every)
    found = run(*(made_up(name) for name in names if not name.startswith("held")))
    measured = [target for target in TARGETS if target.name != "held"]
    assert [target.name for target in measured if target.ratio(found) is None] == []
    assert {target.profile for target in TARGETS} <= names
    apart = ("profile", "rescale", "nexmark")
    with_labels = [each for each in every if not each.workload.startswith(apart)]
    assert {case.subject for case in with_labels} <= set(LABELS)
    workloads = {case.workload for case in with_labels}
    assert workloads - {"latency", "held", "peers"} == set(WORKLOADS)


def test_cases_are_chosen_by_the_beginning_of_their_name() -> None:
    every = cases(FULL)
    assert chosen(every, []) == every
    assert [case.name for case in chosen(every, ["held", "latency/hdfs"])] == [
        "latency/hdfs",
        "held/ours",
    ]


def test_a_rescale_stands_beside_the_steps_before_and_beside_an_outage() -> None:
    found = run(rescale("rescale-1m/batched", 0.3, 0.25), offline("rescale-1m/offline", 9.0))
    text = render(found)
    assert "| `batched`, 1 M keys | 300 | 200 | 1.50× | 250 | 2 | 8 | 1.0 |\n" in text
    newer = render(run(rescale("rescale-1m/batched", 0.3, 0.25, 3 * 2**20)))
    assert "| `batched`, 1 M keys | 300 | 200 | 1.50× | 250 | 2 | 8 | 1.0 | 3.0 |" in newer
    assert "| 1 M keys | 9.0 | 0.25 | 1/36 |" in text
    assert "| longest of as many steps before | ≤ 1.25× | 1.50× | ✗ missed |" in text
    assert f"]({PICTURE})" in text


def test_the_picture_has_a_point_for_every_step_and_a_band_for_the_rescale() -> None:
    found = run(rescale("rescale-1m/batched", 0.3, 0.2), rescale("rescale-1m/fluid", 0.3, 0.2))
    drawn = ElementTree.fromstring(picture(found))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{space}circle")) == 20
    bands = [each for each in drawn.findall(f"{space}rect") if each.get("fill") == BAND]
    ends = [float(each.get("x", "")) + float(each.get("width", "")) for each in bands]
    shown = [text.text for text in drawn.findall(f"{space}text")]
    assert shown.count("2 steps") == 2
    assert {"batched", "fluid", "100 ms", "1 s"} <= set(shown)
    # Steps 5 and 6 of 10, from the left of the axis to its right end.
    assert ends == pytest.approx([LEFT + (WIDTH - LEFT - RIGHT) * 0.6] * 2, abs=0.2)
    assert picture(run(result("latency/ours", 0.5))) == ""


def test_a_later_run_of_some_cases_takes_their_places() -> None:
    earlier = run(result("latency/ours", 0.5), result("latency/hdfs", 1.0))
    newer = run(result("latency/ours", 0.25), result("held/ours", 3.0))
    both = earlier.with_new(newer)
    assert [each.name for each in both.results] == ["latency/ours", "latency/hdfs", "held/ours"]
    assert both.results[0] == newer.results[0]
    assert both.machine["measured anew later"] == "latency, held"


def test_a_reader_learns_how_fast_the_machine_was() -> None:
    measured = Result("latency", "hdfs", 0, Outcome((Batch(1, 1.0),), 1.0), speed=5.0)
    slowed = Result("latency", "ours", 0, Outcome((Batch(1, 1.0),), 1.0), speed=3.0)
    assert "ran at 60 % to 100 % of its best" in render(run(measured, slowed))
    assert "latency/ours 60 %" in render(run(measured, slowed))
    assert "ran at" not in render(run(Result("latency", "ours", 0, Outcome((Batch(1, 1.0),), 1.0))))
