"""The demo's rescales: to twice the workers, then down to one, while orders arrive."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.pipeline import Pipeline
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.status import Status


@dataclass(frozen=True, slots=True)
class PlannedRescale:
    """A rescale to begin when this share of the orders is committed."""

    after: float
    workers: int


def planned_rescales(workers: int) -> tuple[PlannedRescale, ...]:
    """The rescales of the demo.

    >>> [each.workers for each in planned_rescales(2)]
    [4, 1]
    """
    return (PlannedRescale(0.15, 2 * workers), PlannedRescale(0.5, 1))


@dataclass(slots=True)
class DemoRescales:
    """The progress of the planned rescales: one begins when the one before has settled.

    ``spans`` has the first and last step of each; the last is None while bins move.
    """

    planned: tuple[PlannedRescale, ...]
    spans: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def going_to(self) -> int | None:
        """The target of the current rescale; None while nothing moves."""
        if self.spans and self.spans[-1][1] is None:
            return self.planned[len(self.spans) - 1].workers
        return None

    @property
    def is_over(self) -> bool:
        """Whether all rescales have settled."""
        return len(self.spans) == len(self.planned) and self.going_to is None

    def advance(self, pipeline: Pipeline, status: Status, share: float) -> FinishedRescale | None:
        """Begin a rescale that is due; return one that has just settled."""
        if self.going_to is not None:
            if status.rescale is not None:
                return None
            self.spans[-1] = (self.spans[-1][0], status.step)
            return status.rescales[-1]
        due = self.planned[len(self.spans)] if len(self.spans) < len(self.planned) else None
        if due is not None and status.step and share >= due.after:
            self.spans.append((status.step + 1, None))
            pipeline.scale(due.workers)
        return None

    def moved_in(self, step: int) -> bool:
        """Whether bins were moving in this step."""
        return any(first <= step and (last is None or step <= last) for first, last in self.spans)
