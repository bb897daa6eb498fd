"""Every bin is where it is to stay: workers without bins are told."""

from __future__ import annotations

import msgspec

from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.steady import Steady
from anabranch.rescale.step_moves import StepMoves


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """Every bin is where it is to stay. In one more step, workers without bins get ``Shutdown``."""

    request: TargetRequest
    outcome: RescaleOutcome
    moved: MovedTotals

    @property
    def pending(self) -> bool:
        """One step more; whoever reopened with other workers may wait until there is input."""
        return self.outcome is not RescaleOutcome.REOPENED

    def plan(self, view: MigrationView) -> Intent:
        """Tell the workers that have no bins."""
        return Intent(settle=True)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady | Settled:
        """They know: it is over."""
        return Steady() if ours and moves.settles else self
