"""``anabranch node`` without Spark: the real command, whose node runs a shop in memory.

The shop's directory is the parent of the pipeline's. With a file ``hang`` there, its sink never
returns, and says so in ``hanging``; with a file ``slow``, the node takes for ever to start, and
says so in ``starting``. ``JOIN`` seconds are what its threads have to end.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.cli import app as cli
from anabranch.node import flow_code, threads
from anabranch.node.core import NodeCore
from anabranch.node.process import NodeCommand
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.sinks import StagedStep
from anabranch.sinks.memory import MemorySink
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.shop import make_program

FLOW = "shop.py:flow"


@dataclass(frozen=True)
class PlainCommand(NodeCommand):
    """Starts this program in place of ``anabranch``."""

    def line(self) -> list[str]:
        """The command line."""
        python, _, _, *rest = super().line()
        return [python, "-m", "tests.node.plain_node", *rest]


class Hung:
    """A publisher that never returns."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def publish(self, staged: StagedStep) -> None:
        (self._base / "hanging").touch()
        time.sleep(3600)


def build(flow: Any, *, directory: Path, code: str, **_: Any) -> ThreadedNode:
    base = directory.parent
    if (base / "slow").exists():
        (base / "starting").touch()
        time.sleep(3600)
    if (base / "hang").exists():
        threads.JOIN_SECONDS = float((base / "hang").read_text())
        threads.SHUT_SECONDS = 0.1
        hung = Hung(base)
        MemorySink.open = lambda sink, context: hung  # type: ignore[assignment,method-assign,return-value]
    made = make_program(base, MemorySink())
    plane = MemoryPlane(made, directory)
    core = NodeCore(made, directory, plane, code, clock=time.monotonic, boot=str(time.time_ns()))
    return ThreadedNode(core)


def main() -> None:
    vars(sys.modules["anabranch.cli.node"]).update(build_node=build)
    vars(flow_code).update(load_flow=lambda flow: None, code_of=lambda flow: "code")
    cli.main()


if __name__ == "__main__":
    main()
