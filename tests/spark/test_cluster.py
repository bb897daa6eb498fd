"""On a cluster tasks are retried, overtaken and recomputed; the result stays what it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

APP = Path(__file__).with_name("cluster_app.py")
VALUES = range(800)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenarios, all run once."""
    directory = tmp_path_factory.mktemp("cluster")
    run_scenarios(directory)
    return directory


def run_scenarios(directory: Path, *names: str) -> None:
    """Run these, or all but the long ones."""
    log = directory / "log.txt"
    with log.open("wb") as out:
        done = subprocess.run(
            [sys.executable, str(APP), str(directory), *names],
            stdout=out,
            stderr=out,
            timeout=600,
            cwd=directory,
            check=False,
        )
    assert done.returncode == 0, log.read_text()[-3000:]


pytestmark = [pytest.mark.spark, pytest.mark.timeout(700)]


def result(base: Path, scenario: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((base / f"{scenario}.json").read_text())
    assert "error" not in found, found["error"]
    return found


def executions(base: Path, scenario: str) -> Counter[str]:
    return Counter(p.read_text() for p in (base / scenario / "executions").iterdir())


def rows(base: Path, scenario: str, sink: str) -> list[tuple[Any, ...]]:
    paths = sorted((base / scenario / sink).glob("step-*"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def expected_sums() -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The first region by plain Python: the state, and the rows it emits, in order."""
    totals: dict[int, int] = {}
    emitted = []
    # Two partitions, a step's rows split evenly, in order of (partition, position).
    for value in planned_order():
        totals[value % 29] = totals.get(value % 29, 0) + value
        emitted.append((value % 13, totals[value % 29]))
    return totals, emitted


def planned_order() -> list[int]:
    """The rows of both steps, partition after partition."""
    order: list[int] = []
    for step in range(2):
        for partition in range(2):
            del partition
            order += range(step * 200, step * 200 + 200)
    return order


def check_two_regions(base: Path, scenario: str) -> dict[str, Any]:
    found = result(base, scenario)
    totals, emitted = expected_sums()
    assert found["step"] == 2
    assert {r["k"]: r["total"] for r in found["states"]["sums"]} == totals
    last = dict(emitted)
    assert {r["bucket"]: r["total"] for r in found["states"]["last"]} == last
    assert rows(base, scenario, "sums") == sorted(emitted)
    assert rows(base, scenario, "last") == sorted(emitted)
    return found


def test_a_task_that_fails_once_runs_again_with_the_same_result(base: Path) -> None:
    check_two_regions(base, "failing_task")
    # Value 17 occurs in both partitions of the first step; the failed attempt saw it too.
    assert executions(base, "failing_task")["17"] > 2


def test_an_executor_lost_between_two_regions_is_made_good(base: Path) -> None:
    check_two_regions(base, "lost_executor")
    assert (base / "lost_executor" / "killed").exists()
    assert max(executions(base, "lost_executor").values()) > 2


def test_tasks_that_used_different_attempts_make_the_step_run_again(base: Path) -> None:
    found = result(base, "different_attempts")
    disagreed = [point for point in found["points"] if point.startswith("disagreed")]
    assert disagreed, found["points"]
    assert all(point.endswith(":1") for point in disagreed)
    assert found["step"] == 2
    # The first region is random: its state, its output and what the second region has kept can
    # only fit together if all are of one attempt.
    sums = rows(base, "different_attempts", "sums")
    assert sums == rows(base, "different_attempts", "last")
    emitted = {total for _, total in sums}
    assert {row["total"] for row in found["states"]["sums"]} <= emitted
    assert {row["total"] for row in found["states"]["last"]} <= emitted
    assert len(sums) == len(VALUES)


def test_a_stream_with_two_keyed_consumers_is_computed_once(base: Path) -> None:
    found = result(base, "two_consumers")
    assert executions(base, "two_consumers") == Counter(str(value) for value in range(100))
    sums = rows(base, "two_consumers", "sums")
    buckets = Counter(bucket for bucket, _ in sums)
    assert {r["bucket"]: r["n"] for r in found["states"]["buckets"]} == buckets
    large = [total for _, total in sums if total > 3]
    assert {r["t"]: r["n"] for r in found["states"]["totals"]} == Counter(t % 7 for t in large)
    most = {t % 7: t for t in sorted(large)}
    assert {r["t"]: r["most"] for r in found["states"]["totals"]} == most


@pytest.mark.soak
def test_a_slow_task_is_overtaken_and_counts_once(tmp_path: Path) -> None:
    run_scenarios(tmp_path, "speculation")
    check_two_regions(tmp_path, "speculation")
    assert executions(tmp_path, "speculation")["0"] >= 2


@pytest.mark.soak
def test_transforms_on_several_executors_that_fail_and_die(tmp_path: Path) -> None:
    run_scenarios(tmp_path, "transforms")
    check_two_regions(tmp_path, "transforms")
    assert (tmp_path / "transforms" / "killed").exists()
    assert executions(tmp_path, "transforms")["17"] > 2


def test_executors_go_with_the_workers_and_come_again(base: Path) -> None:
    found = result(base, "released")
    assert found["executors"] == [2, 1, 2]
    totals: Counter[int] = Counter()
    for partition in range(2):
        for value in range((found["rows"] + 1 - partition) // 2):
            totals[value % 29] += value
    assert {row["k"]: row["total"] for row in found["states"]["sums"]} == totals
