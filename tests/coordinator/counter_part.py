"""A committed part that only tests know: it counts steps, asks all workers, and names a file."""

from __future__ import annotations

import msgspec

from anabranch.coordinator.parts.port import CommitContext, Part, PartPlan, PlanContext, WaitContext
from anabranch.messages import PartAnswer, Question
from anabranch.records.commit import Commit
from anabranch.records.shares import members

NAME = "counter"
PENDING_STEPS = 3


class Asked(msgspec.Struct, frozen=True):
    """A question that is under way, and to whom."""

    number: int
    workers: tuple[tuple[str, int], ...]


class Counter(msgspec.Struct, frozen=True):
    """How many steps there were, and how many workers answered; a file for the newest step.

    It is pending until it was answered ``PENDING_STEPS`` times.
    """

    steps: int = 0
    answered: int = 0
    complete: int = 0
    file: str | None = None


class CounterPart(Part[Counter, Asked]):
    name = NAME
    value_type = Counter
    planned_type = Asked
    placed = True

    def initial(self) -> Counter:
        return Counter()

    def plan(self, value: Counter, context: PlanContext) -> PartPlan:
        workers = tuple(
            (each.region, worker)
            for each in context.placement
            if not each.source
            for worker in members([each])
        )
        body = str(value.steps).encode()
        messages = tuple((region, worker, Question(NAME, body)) for region, worker in workers)
        return PartPlan(Asked(value.steps, workers), messages)

    def after_commit(
        self, value: Counter, planned: Asked | None, context: CommitContext
    ) -> Counter:
        assert planned is not None
        raw = context.report(NAME)
        answers = () if raw is None else msgspec.json.decode(raw, type=tuple[PartAnswer, ...])
        fitting = {
            (answer.region, answer.worker)
            for answer in answers
            if answer.body == str(planned.number).encode()
        }
        whole = fitting == set(planned.workers)
        return Counter(
            value.steps + 1,
            value.answered + len(fitting),
            value.complete + whole,
            file_of(context.plan.step),
        )

    def pending(self, value: Counter, context: WaitContext) -> bool:
        return value.complete < PENDING_STEPS

    def files(self, value: Counter) -> frozenset[str]:
        return frozenset() if value.file is None else frozenset({value.file})


COUNTER = CounterPart()


def file_of(step: int) -> str:
    return f"part/{NAME}/{step:012d}-count"


def counter_of(commit: Commit) -> Counter:
    return msgspec.json.decode(commit.parts[NAME], type=Counter)
