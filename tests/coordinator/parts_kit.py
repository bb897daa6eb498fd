"""Committed parts as commits of tests hold them."""

from __future__ import annotations

import msgspec

from anabranch.coordinator.parts.frontiers import FRONTIERS
from anabranch.coordinator.parts.parts import STANDARD, Parts
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import SOURCES, SourcePositions
from anabranch.progress.dataflow.times import Frontiers
from anabranch.records.plan import Input, Plan, PlannedPart
from anabranch.rescale.controller import Rescale
from anabranch.rescale.step_moves import PART, StepMoves, moves_of


def parts_with(
    positions: tuple[Input, ...] = (),
    rescale: Rescale | None = None,
    frontiers: Frontiers | None = None,
) -> dict[str, msgspec.Raw]:
    """The parts of a commit."""
    parts = Parts.initial(STANDARD).put(SOURCES, SourcePositions(positions))
    parts = parts.put(FRONTIERS, frontiers or Frontiers())
    return parts.put(RESCALE, rescale or Rescale()).encode()


def planned_moves(moves: StepMoves | None) -> dict[str, PlannedPart]:
    """The parts of a plan that moves bins."""
    if moves is None:
        return {}
    value, planned = (msgspec.Raw(msgspec.json.encode(each)) for each in (Rescale(), moves))
    return {PART: PlannedPart(value, planned)}


def moves_in(plan: Plan) -> StepMoves:
    """What a plan moves: it must move something."""
    found = moves_of(plan)
    assert found is not None
    return found
