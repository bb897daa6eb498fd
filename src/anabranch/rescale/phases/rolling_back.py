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

    request: TargetRequest
    migration: Migration

    @property
    def pending(self) -> bool:
        """Steps are needed, also without input."""
        return True

    def plan(self, view: MigrationView) -> Intent:
        """The next round."""
        return self.migration.intent(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> RollingBack | Settled:
        """One round further, or back."""
        migration = self.migration
        if ours:
            migration = migration.after(moves, reports)
        if migration.is_done(moves.placement, moves.collect):
            return Settled(self.request, RescaleOutcome.ROLLED_BACK, migration.moved)
        return RollingBack(self.request, migration)
