"""A shop that has run to its end without Spark: a directory to read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from anabranch.node.program import Program
from anabranch.node.runner import Runner, Settings
from anabranch.sinks.memory import MemorySink
from tests.node.memory_plane import MemoryPlane
from tests.node.shop import PAGES, Page, program, scripted, shop


def finished(
    directory: Path, pages: Sequence[Page] = PAGES, *, workers: int = 2, made: Program | None = None
) -> Runner:
    """Run a program, the shop unless told otherwise, until its input ends."""
    made = made or program(shop(scripted(pages), MemorySink(), MemorySink()))
    clock = itertools.count(1000)
    plane = MemoryPlane(made, directory)
    settings = Settings(workers=workers)
    runner = Runner(made, directory, plane, "code", settings, lambda: float(next(clock)))
    try:
        runner.recover()
        while (plan := runner.next_plan()) is not None or not runner.ended():
            if plan is not None:
                runner.run(plan)
        runner.close()
    finally:
        runner.give_up()
    return runner
