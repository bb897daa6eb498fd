"""Anabranch: how long it takes from the row that closes a window to the window's result."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import anabranch as ab
from benchmarks.child import Spec, case
from benchmarks.measure import Outcome
from benchmarks.nexmark.closing import waits, window_ends
from benchmarks.nexmark.ours import run
from benchmarks.recorder import PUBLISHED, Recorder


def measure(spec: Spec) -> Outcome:
    """Run to the end of the input, or until time is up."""
    recorder = Recorder()
    started = time.perf_counter()
    pipeline = run(spec, recorder)
    cut = pipeline.wait(spec.seconds).phase is ab.Phase.RUNNING
    if cut:
        pipeline.shutdown()
    files: dict[int, list[Path]] = defaultdict(list)
    for path in (Path(spec.work) / "out").glob("step-*.parquet"):
        files[int(path.name.split("-")[1])].append(path)
    windows = {step: window_ends(paths) for step, paths in files.items()}
    reading = [done.step for done in recorder.steps if done.rows]
    began = {number: recorder.begun(step) for number, step in enumerate(reading, start=1)}
    published = {step: recorder.point(PUBLISHED, step) for step in windows}
    found = waits(windows, began, published)
    return Outcome(found, time.perf_counter() - started, cut)


if __name__ == "__main__":
    case(measure)
