"""Bins stay where they are, but for those in hand-over."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Cancelling(msgspec.Struct, frozen=True, tag="cancelling"):
    """Nothing more is handed over; what was collected arrives at its new owner."""

    request: TargetRequest
    origin: tuple[Shares, ...]
    moved: MovedTotals

    @property
    def pending(self) -> bool:
        """A step or two are needed to end it."""
        return True

    def plan(self, view: MigrationView) -> Intent:
        """Nothing new."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Cancelling | Settled:
        """Over, as soon as a step has collected nothing."""
        return (
            self if moves.collect else Settled(self.request, RescaleOutcome.CANCELLED, self.moved)
        )
