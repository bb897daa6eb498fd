"""The phase in which workers report their loads, from which the target is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import msgspec

from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.shares import Shares
from anabranch.rescale.migration import Intent, Migration, MigrationView, Reports
from anabranch.rescale.phases.moving import Moving
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.rounds import usual_seconds
from anabranch.rescale.step_moves import StepMoves
from anabranch.rescale.targets import target_for


class Interrogating(msgspec.Struct, frozen=True, tag="interrogating"):
    """Workers are asked for their loads. Missing answers do not block the rescale.

    ``origin`` is the assignment to roll back to: the last settled one.
    """

    pending: ClassVar[bool] = True
    request: TargetRequest
    origin: tuple[Shares, ...]
    answered: bool = False
    waited: int = 0

    def plan(self, view: MigrationView) -> Intent:
        """Ask; once all have answered, or after ``answer_steps``, compute the target."""
        if not self.answered and self.waited < view.settings.answer_steps:
            return Intent(ask=True)
        target = target_for(self.request, view.placement, view.loads)
        migration = Migration(target, usual_seconds(view.recent))
        return replace(migration.intent(view), migration=migration)

    def after(
        self, moves: StepMoves, reports: Reports, ours: bool
    ) -> Interrogating | Moving | Settled:
        """Check the answers, or begin to move."""
        if not ours:
            return self
        if moves.migration is not None:
            return Moving(self.request, self.origin, moves.migration).after(moves, reports, ours)
        if not moves.asked:
            return self
        answered = {(load.region, load.worker, load.generation) for load in reports.loads}
        asked = {
            (each.region, worker, each.generation)
            for each in moves.placement
            for worker in each.workers
        }
        return Interrogating(self.request, self.origin, asked <= answered, self.waited + 1)
