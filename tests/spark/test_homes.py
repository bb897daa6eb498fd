"""Homes on a real Spark: 2 → 4 → 2 workers under load, with what is copied, read and missed."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.records.run_list import runs_of
from anabranch.rescale.rounds import RescaleSettings
from tests.spark.running import commits, published, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]

KEYS = 400
ROWS = 200


class Load:
    """A pipeline that gets files as long as a test wants, and what must come of it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.directory = path / "state"
        self.done: list[ab.StepDone] = []
        self._files = itertools.count()
        self._enough = threading.Event()
        self.counts: Counter[str] = Counter()
        (path / "in").mkdir(parents=True)
        self._write()
        flow = ab.Dataflow("load")
        source = ab.FileSource(
            str(path / "in"), format="json", schema="k string, v bigint", max_files_per_step=1
        )
        keyed = flow.source("in", source).key_distribute("by-k", "k")
        keyed.aggregate("totals", n="count(*)", v="sum(v)").sink(
            "out", ab.FileSink(str(path / "out"), format="json")
        )
        self.pipeline = ab.run(
            flow, directory=self.directory, bins=16, watch=self.done.append, **options
        )
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = next(self._files)
        rows = [{"k": f"k{(number * 37 + i) % KEYS}", "v": i} for i in range(ROWS)]
        self.counts.update(str(row["k"]) for row in rows)
        write_json(self.path / "in" / f"{number:06}.json", rows)

    def _feed(self) -> None:
        while not self._enough.wait(0.05):
            if self.counts.total() - self.pipeline.status().rows < 3 * ROWS:
                self._write()

    def until(self, done: Any) -> None:
        while not done(self.pipeline.status()):
            assert self.pipeline.wait(0.05).phase is ab.Phase.RUNNING

    def more(self, steps: int) -> None:
        """Let some more steps go by."""
        step = self.pipeline.status().step + steps
        self.until(lambda status: status.step >= step)

    def scale(self, workers: int) -> None:
        self.pipeline.scale(workers)
        self.until(lambda status: status.rescale is None)

    def end(self) -> None:
        """Stop when all was read, and compare: with plain Python, every row counted once."""
        self._enough.set()
        self._thread.join()
        self.until(lambda status: status.rows >= self.counts.total())
        self.pipeline.shutdown()
        newest: dict[str, int] = {}
        seen: Counter[str] = Counter()
        for row in published(self.path / "out"):
            assert row["n"] > newest.get(row["k"], 0), "a key's results come in order, once"
            seen[row["k"]] += row["n"] - newest.get(row["k"], 0)
            newest[row["k"]] = row["n"]
        assert seen == self.counts
        kept = {row["k"]: row["n"] for row in self.pipeline.state_table("totals").to_pylist()}
        assert kept == dict(self.counts)

    def homes(self) -> set[str]:
        return {path.name for path in (self.directory / "home").iterdir()}


def test_two_four_two_with_homes_of_their_own(tmp_path: Path) -> None:
    load = Load(tmp_path, isolate_workers=True)
    load.until(lambda status: status.step >= 4)
    load.scale(4)
    assert load.homes() == {f"worker-{number}" for number in range(4)}
    load.scale(2)
    assert len(load.homes()) == 2, "those without bins have no home any more"
    load.more(2)
    load.end()
    uses = [done.homes for done in load.done]
    history = load.pipeline.scale_history()
    assert [each.outcome for each in history] == ["settled", "settled"]
    assert all(each.moved.copied_bytes > 0 for each in history)
    assert sum(use.moved_bytes for use in uses) == sum(e.moved.copied_bytes for e in history)
    assert sum(use.home_bytes for use in uses) > 0
    assert [(use.store_bytes, use.misses) for use in uses] == [(0, 0)] * len(uses)
    status = load.pipeline.status()
    assert status.homes.moved_bytes == sum(use.moved_bytes for use in uses)


def test_homes_that_are_wiped_are_missed_and_change_nothing(tmp_path: Path) -> None:
    load = Load(tmp_path, isolate_workers=True)
    load.until(lambda status: status.step >= 4)
    shutil.rmtree(load.directory / "home")
    load.scale(4)
    shutil.rmtree(load.directory / "home")
    load.more(2)
    load.scale(2)
    load.end()
    uses = [done.homes for done in load.done]
    assert sum(use.misses for use in uses) >= 2
    assert sum(use.store_bytes for use in uses) > 0
    assert [each.outcome for each in load.pipeline.scale_history()] == ["settled", "settled"]


@pytest.mark.soak  # without Spark: tests/node/test_homes.py
def test_three_rescales_in_a_row_with_merges_forced(tmp_path: Path) -> None:
    settings = ab.Settings(
        rescale=RescaleSettings(budget_bytes=1000),
        isolate_workers=True,
        checkpoint_seconds=1e9,
        checkpoint_steps=10**9,
    )
    load = Load(tmp_path, settings=settings)
    load.until(lambda status: status.step >= 4)
    for workers in (4, 1, 3):
        load.scale(workers)
    highest = max(
        len(runs_of(state.runs, number))
        for commit in commits(load.directory)
        for state in commit.states
        for number in range(16)
    )
    merged = sum(done.rows_merged for done in load.done)
    load.end()
    assert merged > 0
    assert highest <= 8
    assert [each.outcome for each in load.pipeline.scale_history()] == ["settled"] * 3
    assert sum(done.homes.misses for done in load.done) == 0
