"""The phases of a rescale: one class each, which holds only the data valid in that phase.

    steady ──▶ interrogating ──▶ moving ──▶ settled ──▶ steady
                                   │ ▲
                                   ▼ │
                                 paused
    cancel: … ──▶ cancelling ──▶ settled          roll back: … ──▶ rolling back ──▶ settled
    another request: … ──▶ interrogating

Each phase has ``plan(view)``, the moves of the next step; ``after(moves, reports, ours)``, the
phase after a committed step, where ``ours`` says that the step was planned for the current
request; and ``pending``, whether it needs a step even without input. ``moved_counts`` adds up what
steps moved, in any phase.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Migration, MigrationView, Reports
from anabranch.rescale.rounds import usual_seconds
from anabranch.rescale.step_moves import StepMoves
from anabranch.rescale.targets import target_for


class Steady(msgspec.Struct, frozen=True, tag="steady"):
    """No bins move, and no rescale is requested."""

    pending: ClassVar[bool] = False

    def plan(self, view: MigrationView) -> StepMoves:
        """Move nothing."""
        return view.step

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady:
        """Stay steady."""
        return self


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """Every bin is in its final place. In one more step, workers without bins get ``Shutdown``."""

    request: TargetRequest
    outcome: RescaleOutcome
    moved: MovedTotals

    @property
    def pending(self) -> bool:
        """True, unless a reopened pipeline settles: that can wait for input."""
        return self.outcome is not RescaleOutcome.REOPENED

    def plan(self, view: MigrationView) -> StepMoves:
        """Shut down the workers without bins."""
        return replace(view.step, settles=True, shutdown=view.idle)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Steady | Settled:
        """Steady once that step is committed."""
        return Steady() if ours and moves.settles else self


class _Migrating(msgspec.Struct, frozen=True):
    """Bins move to the target of a migration."""

    pending: ClassVar[bool] = True
    outcome: ClassVar[RescaleOutcome]
    request: TargetRequest
    migration: Migration

    def plan(self, view: MigrationView) -> StepMoves:
        """Plan the next round."""
        return self.migration.plan(view)

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Self | Settled:
        """Settled if the step completed the migration, else one round further."""
        migration = self.migration.after(moves, reports) if ours else self.migration
        if migration.is_done(moves.placement, moves.collect):
            return Settled(self.request, self.outcome, migration.moved)
        return replace(self, migration=migration)


class Moving(_Migrating, frozen=True, tag="moving"):
    """Bins move to the target; ``origin`` is the assignment to roll back to."""

    outcome: ClassVar[RescaleOutcome] = RescaleOutcome.SETTLED
    origin: tuple[Shares, ...]


class RollingBack(_Migrating, frozen=True, tag="rolling_back"):
    """Bins return to their origin, by a migration whose target is the origin."""

    outcome: ClassVar[RescaleOutcome] = RescaleOutcome.ROLLED_BACK


class Interrogating(msgspec.Struct, frozen=True, tag="interrogating"):
    """Workers are asked for their loads. Missing answers do not block the rescale.

    ``origin`` is the assignment to roll back to: the last settled one.
    """

    pending: ClassVar[bool] = True
    request: TargetRequest
    origin: tuple[Shares, ...]
    answered: bool = False
    waited: int = 0

    def plan(self, view: MigrationView) -> StepMoves:
        """Ask; once all have answered, or after ``answer_steps``, compute the target."""
        if not self.answered and self.waited < view.settings.answer_steps:
            return replace(view.step, asked=True)
        target = target_for(self.request, view.step.placement, view.loads)
        migration = Migration(target, usual_seconds(view.recent))
        return replace(migration.plan(view), migration=migration)

    def after(
        self, moves: StepMoves, reports: Reports, ours: bool
    ) -> Interrogating | Moving | Settled:
        """Check the answers, or begin to move."""
        if not ours:
            return self
        if moves.migration is not None:
            return Moving(self.request, moves.migration, self.origin).after(moves, reports, ours)
        if not moves.asked:
            return self
        answered = {(load.region, load.worker, load.generation) for load in reports.loads}
        asked = {
            (each.region, worker, each.generation)
            for each in moves.placement
            for worker in each.workers
        }
        return replace(self, answered=asked <= answered, waited=self.waited + 1)


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """No more bins move until the rescale is resumed; those already collected arrive."""

    pending: ClassVar[bool] = False
    inner: Interrogating | Moving | RollingBack

    def plan(self, view: MigrationView) -> StepMoves:
        """Move nothing more."""
        return view.step

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Paused | Settled:
        """Apply a step planned before the pause; it may settle the rescale."""
        inner = self.inner.after(moves, reports, ours)
        return inner if isinstance(inner, Settled) else Paused(inner)


class Cancelling(msgspec.Struct, frozen=True, tag="cancelling"):
    """No more bins move; those already collected arrive at their new owners."""

    pending: ClassVar[bool] = True
    request: TargetRequest
    origin: tuple[Shares, ...]
    moved: MovedTotals

    def plan(self, view: MigrationView) -> StepMoves:
        """Move nothing more."""
        return view.step

    def after(self, moves: StepMoves, reports: Reports, ours: bool) -> Cancelling | Settled:
        """Settled as soon as a step collects nothing."""
        if moves.collect:
            return self
        return Settled(self.request, RescaleOutcome.CANCELLED, self.moved)


Phase: TypeAlias = Steady | Interrogating | Moving | RollingBack | Cancelling | Paused | Settled
