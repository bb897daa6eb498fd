"""Anabranch goes from 2 workers to 4 while rows flow: the time of every step, and of every output.

Each run loads a base of keys, lets steps of equal size go by, asks for 4 workers and goes on until
the rescale is over and as many steps as before have followed. Nothing waits between steps: the
load is constant. Every worker has a home of its own, so that what moves is copied.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import anabranch as ab
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.run import start_pipeline
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.flows import check_sums, keyed_sums
from benchmarks.measure import Batch, Fact, Outcome
from benchmarks.recorder import PUBLISHED, Recorder
from benchmarks.steps_picture import DURING

TO = 2 * WORKERS
LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Run:
    """One rescale: the steps around it and what it came to."""

    batches: tuple[Batch, ...]
    info: dict[str, Fact]


def measure(spec: Spec) -> Outcome:
    """The rescale, so many times over; the batches are those of the first run."""
    started = time.perf_counter()
    runs: list[Run] = []
    for number in range(1, spec.number("runs") + 1):
        spent = time.perf_counter() - started
        # One more must fit into the time that is left, going by those before it.
        if runs and spent / len(runs) * number > spec.seconds:
            break
        runs.append(_run(spec, Path(spec.work) / str(number)))
    info: dict[str, Fact] = {"runs": len(runs)}
    for number, run in enumerate(runs, start=1):
        info |= {f"{number}: {name}": value for name, value in run.info.items()}
    return Outcome(runs[0].batches, time.perf_counter() - started, False, info)


def _run(spec: Spec, home: Path) -> Run:
    data = Path(spec.data)
    steady, before = spec.number("steady"), spec.number("load") + spec.number("warm")
    recorder = Recorder()
    pipeline = start_pipeline(
        keyed_sums(data, home / "out", "aggregate"),
        home / "state",
        ab.Settings(
            workers=WORKERS,
            isolate_workers=True,
            rescale=RescaleSettings(policy=MovePolicy(spec.text("way"))),
        ),
        bins=spec.number("bins"),
        master=MASTER,
        spark_conf=COMMON_CONF,
        watch=recorder.watch,
        reached=recorder.reached,
    )
    try:
        _until_step(pipeline, recorder, before + steady)
        pipeline.scale(TO)
        asked = len(recorder.steps)
        while not pipeline.scale_history():
            _still_running(pipeline)
        # The first step with all the new workers belongs to the rescale as well.
        ended = len(recorder.steps) + 1
        _until_step(pipeline, recorder, ended + steady)
    finally:
        pipeline.shutdown()
    check_sums(pipeline, data)
    return _told(recorder, before, asked, ended, pipeline)


def _until_step(pipeline: ab.Pipeline, recorder: Recorder, step: int) -> None:
    while len(recorder.steps) < step:
        _still_running(pipeline)


def _still_running(pipeline: ab.Pipeline) -> None:
    if pipeline.status().phase is not ab.Phase.RUNNING:
        raise AssertionError("the input ended before the rescale did: the stream is too short")
    time.sleep(LOOK_SECONDS)


def _told(recorder: Recorder, before: int, asked: int, ended: int, pipeline: ab.Pipeline) -> Run:
    batches = recorder.batches()
    during = batches[asked:ended]
    usual = batches[max(before, asked - len(during)) : asked]
    published = [recorder.point(PUBLISHED, step) for step in range(asked, ended + 1)]
    gaps = [late - early for early, late in pairwise(published)]
    [finished] = pipeline.scale_history()
    info: dict[str, Fact] = {
        "longest step": max(batch.seconds for batch in during),
        "longest usual step": max(batch.seconds for batch in usual),
        "longest gap": max(gaps),
        "steps": len(during),
        "bins": finished.moved.bins,
        "keys": finished.moved.keys,
        "bytes": finished.moved.bytes,
        "copied": finished.moved.copied_bytes,
    }
    marked = tuple(
        Batch(each.rows, each.seconds, {**each.parts, DURING: float(asked <= place < ended)})
        for place, each in enumerate(batches)
    )
    return Run(marked[before:], info)


if __name__ == "__main__":
    case(measure)
