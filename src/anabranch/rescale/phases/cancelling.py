"""The phase in which a rescale is cancelled."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Cancelling(msgspec.Struct, frozen=True, tag="cancelling"):
    """No more bins move; those already collected arrive at their new owners."""

    pending: ClassVar[bool] = True
    request: TargetRequest
    origin: tuple[Shares, ...]
    moved: MovedTotals

    def plan(self, view: MigrationView) -> Intent:
        """Move nothing more."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Cancelling | Settled:
        """Settled as soon as a step collects nothing."""
        return (
            self if moves.collect else Settled(self.request, RescaleOutcome.CANCELLED, self.moved)
        )
