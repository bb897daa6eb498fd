"""Anabranch with many keys held and with few, under batches that change equally many keys.

With many held the steps go on until every file of the loaded base is out of the run list, so that
each of its bins has been merged once; with few held they are as many. Both run in one Spark, after
a warm-up.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import anabranch as ab
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.records.commit import Commit, decode_commit
from anabranch.records.run_list import files
from anabranch.run import start_pipeline
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.flows import check_sums, keyed_sums
from benchmarks.measure import Batch, Fact, Outcome, part_medians, times
from benchmarks.recorder import Recorder


@dataclass
class Until:
    """Watches a pipeline: when is the base merged, and when is enough enough."""

    directory: Path
    load: int
    most: int
    to_the_end: bool
    base: frozenset[str] = frozenset()
    merged_after: int | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def step(self, done: ab.StepDone) -> None:
        """A step was committed."""
        if done.step < self.load or self.done.is_set():
            return
        listed = files(*(state.runs for state in self._commit().states))
        if done.step == self.load:
            self.base = listed
        elif self.merged_after is None and not (listed & self.base):
            self.merged_after = done.step - self.load
        enough = self.merged_after is not None and not self.to_the_end
        if enough or done.step >= self.load + self.most:
            self.done.set()

    def _commit(self) -> Commit:
        journal = Journal(FileDirectory(self.directory / "journal"))
        latest = journal.latest_commit()
        assert latest is not None
        return decode_commit(journal.read(latest).body)


def measure(spec: Spec) -> Outcome:
    """Warm up, then many keys until their base is merged, then few keys for as many steps."""
    started = time.perf_counter()
    warm, most = spec.number("warm"), spec.number("most")
    _steps(spec, "few", "warm-up", warm, to_the_end=True)
    many, until = _steps(spec, "many", "many", most, to_the_end=False)
    few, _ = _steps(spec, "few", "few", len(many), to_the_end=True)
    merged = until.merged_after
    info: dict[str, Fact] = {
        "steps": len(many),
        "base merged after": f"{merged} steps" if merged else "not within these steps",
        "base files": len(until.base),
    }
    info |= _told("many", many)
    info |= _told("few", few)
    return Outcome((*many, *few), time.perf_counter() - started, merged is None, info)


def _steps(
    spec: Spec, keys: str, name: str, most: int, *, to_the_end: bool
) -> tuple[tuple[Batch, ...], Until]:
    """Load a base, then run up to so many steps; gives those after the loading."""
    data, home = Path(spec.data) / keys, Path(spec.work) / name
    until = Until(home / "state", spec.number(f"load {keys}"), most, to_the_end)
    recorder = Recorder(until.step)
    pipeline = start_pipeline(
        keyed_sums(data, home / "out", "aggregate"),
        until.directory,
        ab.Settings(workers=WORKERS),
        master=MASTER,
        spark_conf=COMMON_CONF,
        watch=recorder.watch,
        reached=recorder.reached,
    )
    deadline = time.monotonic() + spec.seconds
    while not until.done.wait(0.2) and time.monotonic() < deadline:
        if pipeline.status().phase is not ab.Phase.RUNNING:
            break
    pipeline.shutdown()
    check_sums(pipeline, data)
    counted = most if to_the_end else until.merged_after or most
    return recorder.batches()[until.load :][:counted], until


def _told(name: str, batches: tuple[Batch, ...]) -> dict[str, Fact]:
    took = times(batches)
    parts = part_medians(batches)
    merging = [batch.parts.get("merge", 0.0) for batch in batches]
    return {
        f"{name}: median": took.median,
        f"{name}: low": took.low,
        f"{name}: high": took.high,
        f"{name}: mean": took.mean,
        f"{name}: lookup": parts.get("lookup", 0.0) / WORKERS,
        f"{name}: write": parts.get("write", 0.0) / WORKERS,
        f"{name}: merge, all steps": sum(merging) / WORKERS,
        f"{name}: merge, longest": max(merging) / WORKERS,
    }


if __name__ == "__main__":
    case(measure)
