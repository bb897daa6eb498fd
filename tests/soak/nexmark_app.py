"""A Nexmark query that goes from 2 workers to 4 and to 1, and is killed on the way to 4.

Run as ``python -m tests.soak.nexmark_app BASE QUERY SEED``, at the head of a process group. The
first run kills its whole group somewhere inside the rescale to 4 workers and leaves in
``BASE/killed`` in what phase. The second run lets that rescale end, asks for 1 worker and runs to
the end of the input; the rescales are in ``BASE/ended`` then.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anabranch as ab
from examples.nexmark.events import event_source, nexmark
from examples.nexmark.generator import Nexmark
from tests.spark.killable import SPARK

EVENTS = 240_000
SETTINGS = Nexmark(seed=4, rate=2_000, base=1_436_918_400_000_000 - 60_000_000)
"""Two minutes around midnight."""
PER_STEP = 4_000
SPAN = 4_000
"""Each partition is two seconds ahead of the one before it: the last is six ahead of the first,
which is more than a row may be late."""


def build(base: Path, query: str) -> ab.Dataflow:
    """The query, with its result in ``base/out``."""
    flow = ab.Dataflow(query)
    source = event_source(EVENTS, SETTINGS, partitions=4, span=SPAN, events_per_step=PER_STEP)
    program = importlib.import_module(f"examples.nexmark.{query}")
    program.query(nexmark(flow, source)).sink("out", ab.FileSink(base / "out", "parquet"))
    return flow


def until(pipeline: ab.Pipeline, wanted: Callable[[ab.Status], bool]) -> ab.Status:
    """Wait for something while the pipeline runs."""
    while not wanted(status := pipeline.status()):
        if status.phase not in (ab.Phase.STARTING, ab.Phase.RUNNING):
            raise AssertionError(f"it ended too early: {status}")
        time.sleep(0.01)
    return status


def kill_inside_a_rescale(pipeline: ab.Pipeline, base: Path, chance: random.Random) -> None:
    """Ask for 4 workers and end all of this, so many steps later."""
    first = chance.randrange(6, 20)
    until(pipeline, lambda status: status.step >= first)
    asked = pipeline.scale(4).step
    steps = chance.randrange(3)
    status = until(pipeline, lambda status: status.rescale is None or status.step >= asked + steps)
    assert status.rescale is not None, f"it was over after {steps} steps"
    time.sleep(chance.random() / 10)
    (base / "killed").write_text(f"step {status.step}, {status.rescale.phase}")
    os.killpg(0, signal.SIGKILL)


def go_on(pipeline: ab.Pipeline, base: Path) -> None:
    """Let the rescale to 4 end, go to 1 worker, and run to the end."""
    until(pipeline, lambda status: bool(status.rescales) and status.rescale is None)
    more = pipeline.status().step + 3
    until(pipeline, lambda status: status.step >= more)
    pipeline.scale(1)
    until(pipeline, lambda status: len(status.rescales) > 1)
    status = pipeline.wait()
    assert status.phase is ab.Phase.COMPLETED, status
    history = [(each.outcome, each.moved.bins) for each in pipeline.scale_history()]
    workers = [len(set(region.bins)) for region in status.regions]
    (base / "ended").write_text(json.dumps({"rescales": history, "workers": workers}))


def main(base: Path, query: str, seed: int) -> None:
    """Run until killed, or to the end."""
    again = (base / "killed").exists()
    pipeline = ab.run(
        build(base, query),
        directory=base / "state",
        workers=None if again else 2,
        bins=32,
        master="local[2]",
        spark_conf=SPARK,
    )
    if again:
        go_on(pipeline, base)
    else:
        kill_inside_a_rescale(pipeline, base, random.Random(seed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
