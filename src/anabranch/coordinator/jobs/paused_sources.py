"""Sources that are paused: what users want of them, and what the node knows of that.

What is wanted is one value, all sources that are paused, under a number that grows from change to
change and from leader to leader. The node reports which value it goes by. A higher one than ours is
of a coordinator before us, and is taken over. While the node's is lower, an order was lost or is
on its way: it is given again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Effect, Give
from anabranch.coordinator.events import Event, NodeReported
from anabranch.coordinator.operations import PauseSource, StartSource
from anabranch.coordinator.phases import Closing
from anabranch.coordinator.plans import OPENS
from anabranch.protocol.node import Failure, NodeReport, PausedSources, SourcesOrder

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory


@dataclass(slots=True)
class PausedSourcesJob:
    """The sources of the dataflow, and those that nothing is to be asked of."""

    #: as the last node has told them
    names: tuple[str, ...] = ()
    paused: PausedSources = field(default_factory=PausedSources)
    #: when the node was last told
    given: float = 0.0

    def refusal(self, source: str) -> Failure | None:
        """Why a source can neither be paused nor started."""
        if source in self.names:
            return None
        if not self.names:
            what = "Which sources there are is not known before the node has started"
            return refusal(what, "Ask again in a moment.")
        known = ", ".join(map(repr, self.names))
        return refusal(f"There is no source {source!r}", f"Sources: {known}.")

    def ask(self, memory: Memory, request: PauseSource | StartSource, now: float) -> list[Effect]:
        """Pause or start a source; one that is as it should be stays so."""
        names = set(self.paused.names)
        match request:
            case PauseSource(source):
                names.add(source)
            case StartSource(source):
                names.discard(source)
        if names == set(self.paused.names):
            return []
        number = max(self.paused.number, memory.leader * OPENS) + 1
        known = tuple(each for each in self.names if each in names)
        self.paused = PausedSources(number, known)
        # A node that is being looked for gets it with its order to open.
        return [] if memory.node.report is None else self._give(now)

    def adopt(self, report: NodeReport) -> None:
        """Take over what a coordinator before us has paused."""
        self.names = report.info.sources
        if report.paused.number > self.paused.number:
            self.paused = report.paused

    def handle(self, memory: Memory, event: Event, now: float) -> list[Effect]:
        """Repeat the order while the node that is open goes by an older one."""
        match event:
            case NodeReported(report) if report.paused.number < self.paused.number:
                if report.opened != memory.node.opened or isinstance(memory.phase, Closing):
                    return []
                if now >= self.given + 4 * memory.settings.deadlines.again:
                    return self._give(now)
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """Never: the node reports again and again."""
        return []

    def withdraw(self) -> tuple[int, ...]:
        """Nobody waits: requests are answered at once."""
        return ()

    def _give(self, now: float) -> list[Effect]:
        self.given = now
        return [Give(SourcesOrder(self.paused))]
