"""A rescale waits until it is told to go on."""

from __future__ import annotations

import msgspec

from anabranch.rescale.migration import Intent, MigrationView, Reports
from anabranch.rescale.phases.interrogating import Interrogating
from anabranch.rescale.phases.moving import Moving
from anabranch.rescale.phases.rolling_back import RollingBack
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.step_moves import StepMoves


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """Nothing more is handed over until it is resumed; what was collected arrives."""

    inner: Interrogating | Moving | RollingBack

    @property
    def pending(self) -> bool:
        """No step is needed."""
        return False

    def plan(self, view: MigrationView) -> Intent:
        """Nothing new."""
        return Intent()

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Paused | Settled:
        """A step that was planned before the pause still counts; it may have been the last one."""
        inner = self.inner.after(moves, reports, ours)
        return inner if isinstance(inner, Settled) else Paused(inner)
