"""The process is killed between any two points of publishing: each step is there once."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.sink_app import ROWS_PER_STEP, STEPS
from tests.spark.test_kill import App, kill_at_point

pytestmark = pytest.mark.spark

APP = "sink_app"


def expected(steps: int = STEPS) -> Counter[tuple[int, int]]:
    """Which step has which row."""
    return Counter((n // ROWS_PER_STEP + 1, n) for n in range(steps * ROWS_PER_STEP))


def files(base: Path) -> Counter[tuple[int, int]]:
    """What a reader that skips hidden names, as Spark does, finds."""
    found: Counter[tuple[int, int]] = Counter()
    for path in (base / "files").glob("day=*/*"):
        step = int(path.name.split("-")[1])
        with path.open(newline="") as lines:
            for (n,) in csv.reader(lines):
                assert path.parent.name == f"day=d{int(n) % 3}"
                found[step, int(n)] += 1
    return found


def manifests(base: Path) -> set[int]:
    return {int(path.stem[5:]) for path in (base / "files" / "_manifest").glob("step-*.json")}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_at_every_point_of_publishing(tmp_path: Path) -> None:
    points = [
        ("written files", 2),
        ("decided files", 3),
        ("placed files", 5),
        ("told files", 6),
        ("published", 8),
    ]
    for point, step in points:
        kill_at_point(tmp_path, point, step, APP)
        seen = files(tmp_path)
        # What can be seen are rows of committed steps, none twice; a manifest stands for a step.
        assert seen <= expected(step)
        done = manifests(tmp_path)
        assert {row for row in expected() if row[0] in done} <= set(seen)
        if point in ("written files", "decided files"):
            assert step not in {step for step, _ in seen}
    App(tmp_path, app=APP).finish()
    assert files(tmp_path) == expected()
    assert manifests(tmp_path) == set(range(1, STEPS + 1))
    assert list((tmp_path / "files" / "_publishing").iterdir()) == []
    with sqlite3.connect(tmp_path / "rows.db") as database:
        assert Counter(database.execute("select step, n from rows")) == expected()
    # The callback saw every step, some again: only such as were not known to be done.
    calls = [int(line) for line in (tmp_path / "calls.txt").read_text().split()]
    assert set(calls) == set(range(1, STEPS + 1))
    assert len(calls) > STEPS
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == {"step": STEPS, "weights": {"default": 100, "publishing": 1}}
