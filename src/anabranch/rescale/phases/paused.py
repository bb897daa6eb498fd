"""The phase in which a rescale is paused."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.interrogating import Interrogating
from anabranch.rescale.phases.moving import Moving
from anabranch.rescale.phases.rolling_back import RollingBack
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """No more bins move until the rescale is resumed; those already collected arrive."""

    pending: ClassVar[bool] = False
    inner: Interrogating | Moving | RollingBack

    def plan(self, view: MigrationView) -> Intent:
        """Move nothing more."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Paused | Settled:
        """Apply a step planned before the pause; it may settle the rescale."""
        inner = self.inner.after(moves, reports, ours)
        return inner if isinstance(inner, Settled) else Paused(inner)
