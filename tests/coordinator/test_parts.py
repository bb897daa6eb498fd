"""All parts of a plan together: what a revision keeps, and what no part may do."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.port import CommitContext, Part, PartPlan, PlanContext
from anabranch.coordinator.settings import Settings
from anabranch.messages import Question
from anabranch.plan.controls import messages_for
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan, decode_plan
from anabranch.rescale.loads import Loads
from tests.coordinator.counter_part import COUNTER, NAME
from tests.coordinator.value_part import VALUE, Told

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


PLAN = Plan(8, 0, 0, "c", (), PLACED, 2)


def context(step: int) -> PlanContext:
    return PlanContext(step, (), PLACED, Loads, (), Settings())


def test_a_revision_plans_the_placement_anew_and_keeps_what_determines_the_result() -> None:
    parts = Parts.initial((MarkPart(), COUNTER))
    first = parts.plan(PLAN, context(8))
    assert set(first.parts) == {"mark", NAME}
    again = parts.plan(msgspec.structs.replace(first, revision=1), context(9))
    assert again.parts["mark"] == first.parts["mark"]
    assert bytes(again.parts["mark"].planned) == b'{"step":8}'
    assert [(each.region, each.worker) for each in again.messages] == [
        ("by-name", 0),
        ("by-name", 1),
    ]


def test_what_a_part_tells_a_region_stays_in_a_revision_and_reaches_its_new_workers() -> None:
    parts = Parts.initial((VALUE, COUNTER))
    first = parts.plan(PLAN, context(8))
    placed = (Assignment("by-name", 2, (0, 2)), Assignment("by-other", 1, (0, 1)))
    moved = msgspec.structs.replace(first, revision=1, placement=placed)
    revised = parts.plan(moved, context(8))
    assert revised.parts["value"] == first.parts["value"]
    told = msgspec.json.decode(first.parts["value"].planned, type=Told)
    said = Question("value", str(told.value).encode())
    for worker in (0, 2):
        assert said in messages_for(revised, "by-name", worker, ())
    assert said not in messages_for(revised, "by-other", 0, ())
    assert decode_plan(msgspec.json.encode(revised)) == revised


def test_a_plan_without_such_messages_says_nothing_of_them() -> None:
    made = Parts.initial((MarkPart(),)).plan(PLAN, context(8))
    assert b"messages" not in msgspec.json.encode(made.parts)


def test_only_a_part_that_is_planned_anew_may_address_workers() -> None:
    with pytest.raises(AssertionError, match="mark addresses single workers: not placed"):
        Parts.initial((Talkative(),)).plan(PLAN, context(8))
