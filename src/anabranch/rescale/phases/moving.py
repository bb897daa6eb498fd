"""Bins are on their way to the target."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import Outcome
from anabranch.protocol.rescale_requests import Wish
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Course, Intent, Reports, View
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Moving(msgspec.Struct, frozen=True, tag="moving"):
    """Bins are on their way to the target; ``origin`` is the assignment to roll back to."""

    wish: Wish
    origin: tuple[Shares, ...]
    course: Course

    @property
    def pending(self) -> bool:
        """Steps are needed, also without input."""
        return True

    def plan(self, view: View) -> Intent:
        """The next round."""
        return self.course.intent(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Moving | Settled:
        """One round further, or there."""
        course = self.course
        if ours:
            course = course.after(moves, reports)
        if course.is_done(moves.placement, moves.collect):
            return Settled(self.wish, Outcome.SETTLED, course.moved)
        return Moving(self.wish, self.origin, course)
