"""The phase without a rescale."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.step_moves import StepMoves


class Steady(msgspec.Struct, frozen=True, tag="steady"):
    """No bins move, and no rescale is requested."""

    pending: ClassVar[bool] = False

    def plan(self, view: MigrationView) -> Intent:
        """Move nothing."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady:
        """Stay steady."""
        return self
