"""Bins stay where they are, but for those in hand-over."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import Moved, Outcome
from anabranch.protocol.rescale_requests import Wish
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Intent, Reports, View
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Cancelling(msgspec.Struct, frozen=True, tag="cancelling"):
    """Nothing more is handed over; what was collected arrives at its new owner."""

    wish: Wish
    origin: tuple[Shares, ...]
    moved: Moved

    @property
    def pending(self) -> bool:
        """A step or two are needed to end it."""
        return True

    def plan(self, view: View) -> Intent:
        """Nothing new."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Cancelling | Settled:
        """Over, as soon as a step has collected nothing."""
        return self if moves.collect else Settled(self.wish, Outcome.CANCELLED, self.moved)
