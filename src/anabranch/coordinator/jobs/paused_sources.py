"""Paused sources: the set that users want, and how it reaches the node.

The set of paused sources is one value with a number that grows with every change and every leader.
The node reports the value it applies. If its number is higher than ours, it comes from an earlier
coordinator, and we adopt it. If it is lower, an order is lost or on its way, and we repeat it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect, Give
from anabranch.coordinator.events import Event, NodeReported
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import PauseSource, StartSource
from anabranch.coordinator.phases import Closing
from anabranch.coordinator.plans import OPENS
from anabranch.protocol.node import Failure, NodeReport, PausedSources, SourcesOrder

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

SourceOperation: TypeAlias = PauseSource | StartSource


@dataclass(slots=True)
class PausedSourcesJob(Job[SourceOperation]):
    """The sources of the dataflow, and which of them are paused."""

    takes = (PauseSource, StartSource)
    #: all sources, as the node reported them
    names: tuple[str, ...] = ()
    paused: PausedSources = field(default_factory=PausedSources)
    #: when the node last got the order
    given: float = 0.0

    def refusal(self, memory: Memory, operation: SourceOperation) -> Failure | None:
        """Why a source can be neither paused nor started; None if it can."""
        source = operation.source
        if source in self.names:
            return None
        if not self.names:
            what = "Which sources there are is not known before the node has started"
            return refusal(what, "Ask again in a moment.")
        known = ", ".join(map(repr, self.names))
        return refusal(f"There is no source {source!r}", f"Sources: {known}.")

    def ask(self, memory: Memory, number: int, operation: SourceOperation) -> list[Effect]:
        """Pause or start a source. Idempotent, and answered at once."""
        answer = Answer(number, step=memory.step)
        names, pause = set(self.paused.names), isinstance(operation, PauseSource)
        if pause == (operation.source in names):
            return [answer]
        names ^= {operation.source}
        following = max(self.paused.number, memory.leader * OPENS) + 1
        known = tuple(each for each in self.names if each in names)
        self.paused = PausedSources(following, known)
        # A node that has not reported yet gets it with its order to open.
        return [answer] if memory.node.report is None else [*self._give(memory), answer]

    def adopt(self, report: NodeReport) -> None:
        """Adopt what an earlier coordinator has paused."""
        self.names = report.info.sources
        if report.paused.number > self.paused.number:
            self.paused = report.paused

    def handle(self, memory: Memory, event: Event) -> list[Effect]:
        """Repeat the order while the open node applies an older one."""
        match event:
            case NodeReported(report) if report.paused.number < self.paused.number:
                if report.opened != memory.node.opened or isinstance(memory.phase, Closing):
                    return []
                if memory.now >= self.given + 4 * memory.settings.deadlines.again:
                    return self._give(memory)
        return []

    def _give(self, memory: Memory) -> list[Effect]:
        self.given = memory.now
        return [Give(SourcesOrder(self.paused))]
