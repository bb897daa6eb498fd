"""Nothing moves."""

from __future__ import annotations

import msgspec

from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.step_moves import StepMoves


class Steady(msgspec.Struct, frozen=True, tag="steady"):
    """Nothing moves, and nothing is wanted."""

    @property
    def pending(self) -> bool:
        """No step is needed."""
        return False

    def plan(self, view: MigrationView) -> Intent:
        """Nothing."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady:
        """The same."""
        return self
