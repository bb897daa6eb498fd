"""Rescaling as a committed part: who owns which bins, and how that changes while rows flow.

``rescale/`` makes the decisions; this part carries them through plans, commits and restarts.
"""

from __future__ import annotations

import msgspec

from anabranch.coordinator.parts.port import (
    CommitContext,
    Pairs,
    Part,
    PartPlan,
    PlanContext,
    WaitContext,
)
from anabranch.records.shares import members
from anabranch.rescale.assignments import later_than
from anabranch.rescale.controller import (
    Rescale,
    after_commit,
    is_moving,
    is_pending,
    joining_next,
    plan_step,
)
from anabranch.rescale.migration import Reports
from anabranch.rescale.step_moves import PART, RescaleReport, StepMoves


class RescalePart(Part[Rescale, StepMoves]):
    """Plans what moves in a step, and records what has moved."""

    name = PART
    value_type = Rescale
    planned_type = StepMoves
    placed = True

    def initial(self) -> Rescale:
        """Nothing moves."""
        return Rescale()

    def plan(self, value: Rescale, context: PlanContext) -> PartPlan | None:
        """What the next step moves, and what it asks and tells workers."""
        if not is_moving(value):
            return None
        loads, settings = context.loads(), context.settings.moving
        moves = plan_step(value, context.placement, loads, context.recent, settings)
        placed = later_than(moves.placement, context.revised)
        moves = msgspec.structs.replace(moves, placement=placed)
        following = None
        if moves.asked:
            joining = joining_next(value, placed)
            following = helping_workers(msgspec.structs.replace(moves, joining=joining))
        return PartPlan(
            moves,
            tuple(
                (each.region, worker, message)
                for each in placed
                if not each.source
                for worker in moves.workers(each.region)
                for message in moves.messages(each.region, worker)
            ),
            placed,
            helping_workers(moves),
            following,
        )

    def after_commit(
        self, value: Rescale, planned: StepMoves | None, context: CommitContext
    ) -> Rescale:
        """The progress of the rescale after the step."""
        if planned is None:
            return value
        raw = context.report(PART)
        said = RescaleReport() if raw is None else msgspec.json.decode(raw, type=RescaleReport)
        result = context.result
        reports = Reports(
            context.seconds,
            result.loads,
            said.prefetched,
            result.homes.moved_bytes,
            said.moving_seconds,
        )
        return after_commit(value, planned, reports)

    def pending(self, value: Rescale, context: WaitContext) -> bool:
        """Whether bins wait to move or are being handed over."""
        return is_pending(value)


RESCALE = RescalePart()


def helping_workers(moves: StepMoves) -> Pairs:
    """The workers that have a task of a region without owning bins of it."""
    return tuple(
        (each.region, worker)
        for each in moves.placement
        for worker in moves.workers(each.region)
        if worker not in members([each])
    )
