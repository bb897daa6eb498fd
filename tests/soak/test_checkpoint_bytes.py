"""A checkpoint of much state costs what has changed, and can be copied while steps go on."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.coordinator.driver.checkpoint_copy import copy_checkpoint
from anabranch.task.state_reader import read_snapshot, read_table

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("spark"), pytest.mark.timeout(7200)]

KEYS = int(os.environ.get("ANABRANCH_KEYS", "10000000"))
CHANGED = KEYS // 1000
LOADS = 10
CHANGES = 10
WAIT = 1800.0

Numbers: TypeAlias = npt.NDArray[np.int64]


class Written:
    """Every file that appears in a directory, with the most bytes that it was seen with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = set(self._scan())
        self._sizes: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """The bytes that were written since the beginning."""
        self._stop.set()
        self._thread.join()
        self._look()
        return sum(self._sizes.values())

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._look()

    def _look(self) -> None:
        for file, size in self._scan().items():
            if file not in self._known:
                self._sizes[file] = max(size, self._sizes.get(file, 0))

    def _scan(self) -> dict[str, int]:
        """Sizes by path; names are never used twice, and what lies aside gets its name later."""
        found = {}
        for path, _, names in os.walk(self._directory):
            for name in names:
                if not name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        found[f"{path}/{name}"] = os.stat(f"{path}/{name}").st_size
        return found


class Input:
    """Files of keys and amounts, and what they add up to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self.totals: Numbers = np.zeros(KEYS, np.int64)
        directory.mkdir()

    def write(self, keys: Numbers, amount: int) -> int:
        """Put a file in place; gives the step that will read it."""
        number = next(self._numbers)
        aside = self._directory / f".{number}"
        pq.write_table(pa.table({"key": keys, "amount": np.full(len(keys), amount)}), aside)
        os.utime(aside, ns=(number * 10**9, number * 10**9))
        aside.rename(self._directory / f"{number:05d}.parquet")
        self.totals[keys] += amount
        return number


def sums(directory: Path) -> ab.Dataflow:
    flow = ab.Dataflow("sums")
    source = ab.FileSource(directory, "parquet", "key bigint, amount bigint", max_files_per_step=1)
    keyed = flow.source("rows", source).key_distribute("by-key", "key")
    keyed.aggregate("sums", total="sum(amount)").where("false").sink("out", ab.MemorySink())
    return flow


def until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not wanted():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def totals(directory: Path, step: int | None = None) -> Numbers:
    """The state as it lies in a directory, in the order of the keys."""
    table = read_table(read_snapshot(directory, step).view("sums"), directory)
    keys, values = (column.to_numpy() for column in table.columns)
    assert len(keys) == KEYS
    found = np.zeros(KEYS, np.int64)
    found[keys] = values
    return found


def test_a_checkpoint_costs_what_has_changed_and_can_be_copied(tmp_path: Path) -> None:
    seed = int(os.environ.get("ANABRANCH_SEED", "7"))
    chance = np.random.default_rng(seed)
    print(f"seed {seed}, {KEYS:,} keys, {CHANGED:,} changed")
    rows = Input(tmp_path / "in")
    directory = tmp_path / "state"
    pipeline = ab.run(
        sums(tmp_path / "in"),
        directory=directory,
        settings=ab.Settings(target_latency_seconds=None, checkpoint_seconds=1e6),
    )

    def reached(step: int) -> None:
        until(lambda: pipeline.status().step >= step)

    begun = time.monotonic()
    for keys in np.array_split(np.arange(KEYS), LOADS):
        last = rows.write(keys, 1)
    reached(last)
    print(f"{KEYS:,} keys after {time.monotonic() - begun:.1f} s")
    pipeline.checkpoint()
    first = pipeline.status()
    held = sum(operator.bytes for operator in first.operators)

    written = Written(directory)
    for keys in np.array_split(chance.choice(KEYS, CHANGED, replace=False), CHANGES):
        last = rows.write(keys, 100)
    reached(last)
    begun = time.monotonic()
    pipeline.checkpoint()
    took = time.monotonic() - begun
    changed = written.end()
    kept = pipeline.status().checkpoints[-1]
    print(
        f"state {held:,} bytes, written between two checkpoints {changed:,} bytes "
        f"(1/{held / changed:.0f}), the second took {took:.2f} s"
    )
    assert kept.step == last == first.step + CHANGES
    expected = rows.totals.copy()
    assert changed <= held / 50

    copy = tmp_path / "copy"
    (node,) = sums(tmp_path / "in").graph().sources()
    copying = threading.Thread(
        target=copy_checkpoint, args=(directory, kept.step, copy, {"rows": node.source})
    )
    copying.start()
    while copying.is_alive():
        last = rows.write(chance.choice(KEYS, CHANGES, replace=False), 10_000)
        reached(last)
    copying.join()
    print(f"{last - kept.step} steps while the checkpoint was copied")
    assert last > kept.step
    assert np.array_equal(totals(copy), expected)

    other = ab.run(sums(tmp_path / "in"), directory=copy)
    until(lambda: other.status().step >= last)
    for each in (pipeline, other):
        each.shutdown()
    assert np.array_equal(totals(directory), rows.totals)
    assert np.array_equal(totals(copy), rows.totals)
