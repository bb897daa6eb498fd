"""The phase in which all bins have arrived and workers without bins are shut down."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.steady import Steady
from anabranch.rescale.step_moves import StepMoves


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """Every bin is in its final place. In one more step, workers without bins get ``Shutdown``."""

    request: TargetRequest
    outcome: RescaleOutcome
    moved: MovedTotals

    @property
    def pending(self) -> bool:
        """True, unless a reopened pipeline settles: that can wait for input."""
        return self.outcome is not RescaleOutcome.REOPENED

    def plan(self, view: MigrationView) -> Intent:
        """Shut down the workers without bins."""
        return Intent(settle=True)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady | Settled:
        """Steady once that step is committed."""
        return Steady() if ours and moves.settles else self
