"""All committed parts of a pipeline together: the one place that asks each of them."""

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
    """The value of every part. Immutable: each change gives another one."""

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
        """The same with another value of a part."""
        return replace(self, values={**self.values, part.name: value})

    def unknown(self, commit: Commit) -> tuple[str, ...]:
        """The parts of a commit that nobody here knows: it must not be gone on from."""
        return tuple(sorted(set(commit.parts) - {part.name for part in self.kinds}))

    def committed(self, commit: Commit | None) -> Parts:
        """The parts as a commit has them; a part that it does not mention begins anew."""
        if commit is None:
            return Parts.initial(self.kinds)
        return replace(self, values={part.name: _value(part, commit) for part in self.kinds})

    def resumed(self, plan: Plan) -> Parts:
        """The parts with the values that a plan without a commit was made from.

        They may be newer than those of the last commit: requests become durable with a plan.
        """
        planned = {
            part.name: msgspec.json.decode(plan.parts[part.name].value, type=part.value_type)
            for part in self.kinds
            if part.name in plan.parts
        }
        return replace(self, values={**self.values, **planned})

    def plan(self, context: PlanContext, *, kept: Plan | None = None) -> PartPlans:
        """What the next step does for the parts.

        With ``kept``, a plan that is revised, only parts that plan the placement are asked.
        """
        asked = [part for part in self.kinds if kept is None or part.placed]
        found = [(part, plan) for part in asked if (plan := part.plan(self.get(part), context))]
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
                self.get(part), _planned(part, planned.get(part.name)), context
            )
            for part in self.kinds
        }
        return replace(self, values=values)

    def encoded(self) -> dict[str, msgspec.Raw]:
        """The parts as a commit holds them."""
        return {part.name: _raw(self.get(part)) for part in self.kinds}

    def pending(self, now: float) -> bool:
        """Whether any part justifies a step."""
        return any(part.pending(self.get(part), now) for part in self.kinds)

    def wakes_at(self) -> list[float]:
        """When parts want to be asked again."""
        times = (part.wakes_at(self.get(part)) for part in self.kinds)
        return [time for time in times if time is not None]

    def files(self) -> tuple[str, ...]:
        """The files in the store that the parts need, sorted."""
        return tuple(sorted({name for part in self.kinds for name in part.files(self.get(part))}))


def _raw(value: msgspec.Struct | object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _value(part: AnyPart, commit: Commit) -> Any:  # noqa: ANN401  (each part has its own type)
    raw = commit.parts.get(part.name)
    return part.initial() if raw is None else msgspec.json.decode(raw, type=part.value_type)


def _planned(part: AnyPart, found: PlannedPart | None) -> Any:  # noqa: ANN401
    return None if found is None else msgspec.json.decode(found.planned, type=part.planned_type)
