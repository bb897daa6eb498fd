"""A committed part that only tests know: in every step it tells each worker of a region a value.

The value determines the result, so a revision of the plan must keep it; and a worker that only the
revision has must get it too. Frontiers will be such a part.
"""

from __future__ import annotations

import itertools

import msgspec

from anabranch.coordinator.parts.port import CommitContext, Part, PartPlan, PlanContext
from anabranch.messages import PartAnswer, Question
from anabranch.records.commit import Commit

NAME = "value"
_drawn = itertools.count(100)


class Told(msgspec.Struct, frozen=True):
    """The value of a step. Drawn anew whenever it is planned: planned again, it is another."""

    value: int


class Heard(msgspec.Struct, frozen=True):
    """The last value, the workers that heard it, and how many steps every worker heard theirs."""

    value: int = 0
    workers: tuple[tuple[str, int], ...] = ()
    complete: int = 0


class ValuePart(Part[Heard, Told]):
    name = NAME
    value_type = Heard
    planned_type = Told

    def initial(self) -> Heard:
        return Heard()

    def plan(self, value: Heard, context: PlanContext) -> PartPlan:
        told = Told(next(_drawn))
        said = Question(NAME, str(told.value).encode())
        regions = [each.region for each in context.placement if not each.source]
        return PartPlan(told, region_messages=tuple((region, said) for region in regions))

    def after_commit(self, value: Heard, planned: Told | None, context: CommitContext) -> Heard:
        assert planned is not None
        raw = context.report(NAME)
        answers = () if raw is None else msgspec.json.decode(raw, type=tuple[PartAnswer, ...])
        heard = {(a.region, a.worker) for a in answers if a.body == str(planned.value).encode()}
        plan = context.plan
        regions = [each.region for each in plan.placement if not each.source]
        tasks = {(region, worker) for region in regions for worker in plan.workers(region)}
        return Heard(planned.value, tuple(sorted(heard)), value.complete + (heard == tasks))


VALUE = ValuePart()


def heard_of(commit: Commit) -> Heard:
    return VALUE.of(commit)
