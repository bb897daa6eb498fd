"""The demo's rescales: up to twice the workers and down to one, while orders arrive."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.pipeline import Pipeline
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.status import Status


@dataclass(frozen=True, slots=True)
class Turn:
    """Go to so many workers when this share of the orders is committed."""

    after: float
    workers: int


def turns(workers: int) -> tuple[Turn, ...]:
    """What the demo does.

    >>> [turn.workers for turn in turns(2)]
    [4, 1]
    """
    return (Turn(0.15, 2 * workers), Turn(0.5, 1))


@dataclass(slots=True)
class DemoRescales:
    """Where the demo is in its turns. ``spans``: first and last step of each, None while it moves.

    A turn is begun when the one before it is settled, however fast the orders come.
    """

    turns: tuple[Turn, ...]
    spans: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def going_to(self) -> int | None:
        """The workers that it goes to now; None while nothing moves."""
        if self.spans and self.spans[-1][1] is None:
            return self.turns[len(self.spans) - 1].workers
        return None

    @property
    def is_over(self) -> bool:
        """Whether all turns are settled."""
        return len(self.spans) == len(self.turns) and self.going_to is None

    def advance(self, pipeline: Pipeline, status: Status, share: float) -> FinishedRescale | None:
        """Begin what is due, see what is settled: then it gives what that came to."""
        if self.going_to is not None:
            if status.rescale is not None:
                return None
            self.spans[-1] = (self.spans[-1][0], status.step)
            return status.rescales[-1]
        due = self.turns[len(self.spans)] if len(self.spans) < len(self.turns) else None
        if due is not None and status.step and share >= due.after:
            self.spans.append((status.step + 1, None))
            pipeline.scale(due.workers)
        return None

    def moved_in(self, step: int) -> bool:
        """Whether bins were on their way in this step."""
        return any(first <= step and (last is None or step <= last) for first, last in self.spans)
