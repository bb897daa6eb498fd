"""Bins return to where they were."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.rescale.migration import Intent, Migration, MigrationView, Reports
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class RollingBack(msgspec.Struct, frozen=True, tag="rolling_back"):
    """Bins return to where they were, by the same way as they came: the target is the origin."""

    wish: TargetRequest
    course: Migration

    @property
    def pending(self) -> bool:
        """Steps are needed, also without input."""
        return True

    def plan(self, view: MigrationView) -> Intent:
        """The next round."""
        return self.course.intent(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> RollingBack | Settled:
        """One round further, or back."""
        course = self.course
        if ours:
            course = course.after(moves, reports)
        if course.is_done(moves.placement, moves.collect):
            return Settled(self.wish, RescaleOutcome.ROLLED_BACK, course.moved)
        return RollingBack(self.wish, course)
