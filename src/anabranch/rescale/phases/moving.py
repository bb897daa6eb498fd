"""The phase in which bins move to the target."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Intent, Migration, MigrationView, Reports
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Moving(msgspec.Struct, frozen=True, tag="moving"):
    """Bins move to the target; ``origin`` is the assignment to roll back to."""

    pending: ClassVar[bool] = True
    request: TargetRequest
    origin: tuple[Shares, ...]
    migration: Migration

    def plan(self, view: MigrationView) -> Intent:
        """Plan the next round."""
        return self.migration.intent(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Moving | Settled:
        """Settled if the step completed the migration, else one round further."""
        migration = self.migration
        if ours:
            migration = migration.after(moves, reports)
        if migration.is_done(moves.placement, moves.collect):
            return Settled(self.request, RescaleOutcome.SETTLED, migration.moved)
        return Moving(self.request, self.origin, migration)
