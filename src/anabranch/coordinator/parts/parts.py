"""All committed parts of a pipeline: the only module that calls each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from anabranch.coordinator.parts.port import CommitContext, P, Pairs, Part, PlanContext, V
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan, PlannedPart, WorkerMessage

AnyPart: TypeAlias = Part[Any, Any]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class PartPlans:
    """What all parts together add to a plan."""

    parts: dict[str, PlannedPart]
    messages: tuple[WorkerMessage, ...] = ()
    placement: tuple[Assignment, ...] | None = None
    helping: Pairs = ()
    helping_next: Pairs | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The value of every part. Immutable: each change returns a new one."""

    kinds: tuple[AnyPart, ...]
    values: Mapping[str, Any]

    @classmethod
    def initial(cls, kinds: Sequence[AnyPart]) -> Parts:
        """The parts of a pipeline without a commit."""
        return cls(tuple(kinds), {part.name: part.initial() for part in kinds})

    def get(self, part: Part[V, P]) -> V:
        """The value of a part."""
        value: V = self.values[part.name]
        return value

    def put(self, part: Part[V, P], value: V) -> Parts:
        """These parts with another value for one of them."""
        return replace(self, values={**self.values, part.name: value})

    def unknown(self, commit: Commit) -> tuple[str, ...]:
        """The parts of a commit that this version does not know. It must not continue from it."""
        return tuple(sorted(set(commit.parts) - {part.name for part in self.kinds}))

    def from_commit(self, commit: Commit | None) -> Parts:
        """The parts as of a commit; a part that the commit lacks gets its initial value."""
        return replace(self, values={part.name: part.of(commit) for part in self.kinds})

    def from_plan(self, plan: Plan) -> Parts:
        """The parts with the values from which an uncommitted plan was made.

        They may be newer than the last commit: a plan makes requests durable.
        """
        planned = {
            part.name: msgspec.json.decode(plan.parts[part.name].value, type=part.value_type)
            for part in self.kinds
            if part.name in plan.parts
        }
        return replace(self, values={**self.values, **planned})

    def plan(self, context: PlanContext, *, kept: Plan | None = None) -> PartPlans:
        """What the next step does for the parts.

        When a plan is revised (``kept``), only the parts that plan the placement plan again.
        """
        asked = [part for part in self.kinds if kept is None or part.placed]
        found = [(part, plan) for part in asked if (plan := part.plan(self.get(part), context))]
        for part, plan in found:
            # A revision plans these anew for its own workers; those of other parts would be lost.
            addressed = plan.messages or plan.helping or plan.placement is not None
            assert part.placed or not addressed, f"{part.name} addresses workers: not placed"
        placements = [plan.placement for _, plan in found if plan.placement is not None]
        assert len(placements) <= 1, "two parts place bins"
        nexts = [plan.helping_next for _, plan in found if plan.helping_next is not None]
        names = {part.name for part in asked}
        others = {} if kept is None else {n: p for n, p in kept.parts.items() if n not in names}
        made = {
            part.name: PlannedPart(_raw(self.get(part)), _raw(plan.planned)) for part, plan in found
        }
        return PartPlans(
            {**others, **made},
            tuple(
                WorkerMessage(region, worker, _raw(message))
                for _, plan in found
                for region, worker, message in plan.messages
            ),
            placements[0] if placements else None,
            tuple(sorted({pair for _, plan in found for pair in plan.helping})),
            tuple(sorted({pair for pairs in nexts for pair in pairs})) if nexts else None,
        )

    def after_commit(self, context: CommitContext) -> Parts:
        """The parts after a step is committed."""
        planned = context.plan.parts
        values = {
            part.name: part.after_commit(
                self.get(part), _decode_planned(part, planned.get(part.name)), context
            )
            for part in self.kinds
        }
        return replace(self, values=values)

    def encode(self) -> dict[str, msgspec.Raw]:
        """The parts as a commit holds them."""
        return {part.name: _raw(self.get(part)) for part in self.kinds}

    def pending(self, now: float) -> bool:
        """Whether any part justifies a step."""
        return any(part.pending(self.get(part), now) for part in self.kinds)

    def wakes_at(self) -> list[float]:
        """When parts may become pending."""
        times = (part.wakes_at(self.get(part)) for part in self.kinds)
        return [time for time in times if time is not None]

    def files(self) -> tuple[str, ...]:
        """The files in the store that the parts need, sorted."""
        return tuple(sorted({name for part in self.kinds for name in part.files(self.get(part))}))


def _raw(value: msgspec.Struct | object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _decode_planned(part: AnyPart, found: PlannedPart | None) -> Any:  # noqa: ANN401  (its own type)
    return None if found is None else msgspec.json.decode(found.planned, type=part.planned_type)
