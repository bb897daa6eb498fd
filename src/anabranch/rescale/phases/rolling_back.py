"""The phase in which bins return to their origin."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.rescale.migration import Intent, Migration, MigrationView, Reports
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class RollingBack(msgspec.Struct, frozen=True, tag="rolling_back"):
    """Bins return to their origin, by a migration whose target is the origin."""

    pending: ClassVar[bool] = True
    request: TargetRequest
    migration: Migration

    def plan(self, view: MigrationView) -> Intent:
        """Plan the next round."""
        return self.migration.intent(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> RollingBack | Settled:
        """Settled if the step completed the return, else one round further."""
        migration = self.migration
        if ours:
            migration = migration.after(moves, reports)
        if migration.is_done(moves.placement, moves.collect):
            return Settled(self.request, RescaleOutcome.ROLLED_BACK, migration.moved)
        return RollingBack(self.request, migration)
