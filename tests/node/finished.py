"""A shop that has run to its end without Spark: a directory to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anabranch.coordinator.settings import Settings
from anabranch.sinks.memory import MemorySink
from anabranch.task.program import Program
from anabranch.task.state_reader import Snapshot
from tests.node.engine import Engine
from tests.node.shop import PAGES, Page, program, scripted, shop


def finished(
    directory: Path, pages: Sequence[Page] = PAGES, *, workers: int = 2, made: Program | None = None
) -> Snapshot:
    """Run a program, the shop unless told otherwise, until its input ends; gives its state."""
    made = made or program(shop(scripted(pages), MemorySink(), MemorySink()))
    engine = Engine(made, directory, settings=Settings(workers=workers))
    engine.run()
    return engine.node.core.snapshot
