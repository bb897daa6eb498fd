"""All parts of a plan together: what a revision keeps, and what no part may do."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.port import CommitContext, Part, PartPlan, PlanContext
from anabranch.coordinator.settings import Settings
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.rescale.loads import Loads
from tests.coordinator.counter_part import COUNTER, NAME

PLACED = (Assignment("by-name", 1, (0, 1)),)


class Mark(msgspec.Struct, frozen=True):
    step: int = 0


class MarkPart(Part[Mark, Mark]):
    """Determines something of the result: a revision must keep what it has planned."""

    name = "mark"
    value_type = planned_type = Mark

    def initial(self) -> Mark:
        return Mark()

    def plan(self, value: Mark, context: PlanContext) -> PartPlan:
        return PartPlan(Mark(context.step))

    def after_commit(self, value: Mark, planned: Mark | None, context: CommitContext) -> Mark:
        return value


class Talkative(MarkPart):
    def plan(self, value: Mark, context: PlanContext) -> PartPlan:
        return PartPlan(Mark(), helping=(("by-name", 2),))


def context(step: int) -> PlanContext:
    return PlanContext(step, (), PLACED, Loads, (), Settings())


def test_a_revision_plans_the_placement_anew_and_keeps_what_determines_the_result() -> None:
    parts = Parts.initial((MarkPart(), COUNTER))
    first = parts.plan(context(8))
    assert set(first.parts) == {"mark", NAME}
    plan = Plan(8, 0, 0, "c", (), PLACED, 2, parts=first.parts, messages=first.messages)
    again = parts.plan(context(9), kept=plan)
    assert again.parts["mark"] == first.parts["mark"]
    assert bytes(again.parts["mark"].planned) == b'{"step":8}'
    assert [(each.region, each.worker) for each in again.messages] == [
        ("by-name", 0),
        ("by-name", 1),
    ]


def test_only_a_part_that_is_planned_anew_may_address_workers() -> None:
    with pytest.raises(AssertionError, match="mark addresses workers: not placed"):
        Parts.initial((Talkative(),)).plan(context(8))
