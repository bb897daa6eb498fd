"""Rescale requests: the next commit includes and answers them, so that they survive a crash.

The part ``parts/rescale.py`` carries the rescale itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.coordinator.closing import needs_steps
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import RescalePipeline
from anabranch.coordinator.rescaling import has_placement, movable_placement
from anabranch.errors import OperationRefused
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
from anabranch.records.placed import Assignment
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.loads import Loads

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory


@dataclass(slots=True)
class RescaleJob(Job[RescalePipeline]):
    """The requests that no commit includes, and what is known of the placement beside commits."""

    takes = (RescalePipeline,)
    #: requests from before the placement was known: applied, or refused, as soon as it is
    early: list[tuple[int, RescalePipeline]] = field(default_factory=list)
    #: the placement after a start with another number of workers, until a commit has it
    reopened: tuple[Assignment, ...] | None = None
    measured: Loads = field(default_factory=Loads)

    def refusal(self, memory: Memory, operation: RescalePipeline) -> Failure | None:
        """Refuse it while no commit can include it."""
        return needs_steps(memory)

    def ask(self, memory: Memory, number: int, operation: RescalePipeline) -> list[Effect]:
        """Accept a request; the machine applies it at once if it can."""
        self.early.append((number, operation))
        return []

    def apply_early(self, memory: Memory) -> list[Effect]:
        """Apply requests to the part's value, to be journalled with the next commit.

        A rewind at the start comes first: it replaces that value.
        """
        known = has_placement(memory) and memory.load.rewind is None
        early, self.early = (self.early, []) if known else ([], self.early)
        refused: list[Effect] = []
        for number, operation in early:
            try:
                placed = movable_placement(memory)
                memory.rescale = apply_request(memory.rescale, operation.request, placed)
            except OperationRefused as error:
                refused.append(Answer(number, failure_of(error)))
            else:
                self.queue.append((number, operation))
        return refused

    def withdraw(self) -> tuple[int, ...]:
        """Drop all requests."""
        early, self.early = self.early, []
        return (*self.take_queue(), *(number for number, _ in early))
