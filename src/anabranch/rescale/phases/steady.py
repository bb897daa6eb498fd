"""The phase without a rescale."""

from __future__ import annotations

import msgspec

from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.step_moves import StepMoves


class Steady(msgspec.Struct, frozen=True, tag="steady"):
    """No bins move, and no rescale is requested."""

    @property
    def pending(self) -> bool:
        """False: it needs no step."""
        return False

    def plan(self, view: MigrationView) -> Intent:
        """Move nothing."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady:
        """Stay steady."""
        return self
