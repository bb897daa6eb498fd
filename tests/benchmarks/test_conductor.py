"""Cases in processes of their own: what fails or hangs is told and does not end the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import conductor
from benchmarks.__main__ import work_directory
from benchmarks.cases import Case
from benchmarks.conductor import conduct, run_case
from benchmarks.measure import Batch
from benchmarks.results import Result

GOOD = """
import json, sys
spec = json.load(open(sys.argv[1]))
batch = {"rows": spec["options"]["rows"], "seconds": 2.0}
json.dump({"batches": [batch], "seconds": 3.0}, open(spec["result"], "w"))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Case]:
    """Makes a case of a program's text."""

    def make(text: str) -> Case:
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(conductor, "_command", lambda case: [sys.executable, str(path)])
        return Case("w", "s", "program", "data", 0, 5.0, {"rows": 7})

    return make


def test_the_outcome_is_read_and_nothing_is_left(
    program: Callable[[str], Case], tmp_path: Path
) -> None:
    found = run_case(program(GOOD), tmp_path, tmp_path / "work", 5.0)
    assert found.outcome is not None
    assert found.outcome.batches == (Batch(7, 2.0),)
    assert list((tmp_path / "work").iterdir()) == []


def test_what_another_system_finishes_at_once_is_one_stretch(
    program: Callable[[str], Case], tmp_path: Path
) -> None:
    halves = GOOD.replace("[batch]", '[batch, {**batch, "seconds": 0.25}]')
    case = program(halves)
    ours = run_case(case, tmp_path, tmp_path / "ours", 5.0).outcome
    theirs = run_case(replace(case, peer="other"), tmp_path, tmp_path / "theirs", 5.0).outcome
    assert ours is not None
    assert theirs is not None
    assert ours.batches == (Batch(7, 2.0), Batch(7, 0.25))
    assert theirs.batches == (Batch(14, 2.25),)


def test_a_failure_is_told_by_its_last_line(program: Callable[[str], Case], tmp_path: Path) -> None:
    case = program("raise SystemExit('no such system')")
    assert run_case(case, tmp_path, tmp_path / "work", 5.0).failure == "failed: no such system"


def test_a_program_without_a_result_is_told(program: Callable[[str], Case], tmp_path: Path) -> None:
    found = run_case(program("pass"), tmp_path, tmp_path / "work", 5.0)
    assert found.failure.startswith("no result:")


def test_a_program_that_hangs_is_ended(
    program: Callable[[str], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "START_AND_END_SECONDS", 0.5)
    case = program("import time\ntime.sleep(600)")
    started = time.monotonic()
    assert "without a result" in run_case(case, tmp_path, tmp_path / "work", 0.5).failure
    assert time.monotonic() - started < 60


def test_what_is_not_installed_is_left_out(tmp_path: Path) -> None:
    case = Case("peers", "x", "benchmarks/peers/x.py", "data", 0, 5.0, {}, "no-such-system")
    found = run_case(case, tmp_path, tmp_path / "work", 5.0)
    assert found.failure == "left out: no-such-system is not installed in .bench/"


def test_when_the_budget_is_used_up_the_rest_is_left_out(tmp_path: Path) -> None:
    told: list[Result] = []
    case = Case("w", "s", "program", "data", 0, 5.0)
    late = time.monotonic() + conductor.LEAST_SECONDS - 1
    found = conduct([case, case], tmp_path, tmp_path, late, lambda result, _: told.append(result))
    assert found == told
    assert {each.failure for each in found} == {"left out: the time budget was used up"}


def test_the_directory_to_work_in_is_made(tmp_path: Path) -> None:
    found = work_directory(tmp_path / "new" / "place")
    assert found.is_dir()
    assert found.parent == tmp_path / "new" / "place"
