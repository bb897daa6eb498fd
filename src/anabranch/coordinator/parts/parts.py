"""All committed parts of a pipeline: the only module that calls each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from anabranch.coordinator.parts.frontiers import FRONTIERS
from anabranch.coordinator.parts.port import CommitContext, P, Part, PlanContext, V, WaitContext
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import SOURCES
from anabranch.records.commit import Commit
from anabranch.records.plan import Plan, PlannedPart, RegionMessage, WorkerMessage

AnyPart: TypeAlias = Part[Any, Any]

STANDARD: tuple[AnyPart, ...] = (SOURCES, RESCALE, FRONTIERS)
"""The parts that every pipeline has."""

_encode = msgspec.json.Encoder().encode


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

    def plan(self, plan: Plan, context: PlanContext) -> Plan:
        """The plan with what it does for the parts.

        In a revision, only the parts that plan the placement plan again.
        """
        asked = [part for part in self.kinds if not plan.revision or part.placed]
        found = [(part, made) for part in asked if (made := part.plan(self.get(part), context))]
        for part, made in found:
            # A revision plans these anew for its own workers; those of other parts would be lost.
            addressed = made.messages or made.helping or made.placement is not None
            assert part.placed or not addressed, f"{part.name} addresses single workers: not placed"
        placements = [made.placement for _, made in found if made.placement is not None]
        assert len(placements) <= 1, "two parts place bins"
        names = {part.name for part in asked}
        parts = {name: kept for name, kept in plan.parts.items() if name not in names}
        for part, made in found:
            said = tuple(RegionMessage(r, _raw(message)) for r, message in made.region_messages)
            parts[part.name] = PlannedPart(_raw(self.get(part)), _raw(made.planned), said)
        nexts = [made.helping_next for _, made in found if made.helping_next is not None]
        return msgspec.structs.replace(
            plan,
            parts=parts,
            messages=tuple(
                WorkerMessage(region, worker, _raw(message))
                for _, made in found
                for region, worker, message in made.messages
            ),
            placement=placements[0] if placements else plan.placement,
            helping=tuple(sorted({pair for _, made in found for pair in made.helping})),
            helping_next=tuple(sorted({pair for pairs in nexts for pair in pairs}))
            if nexts
            else None,
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

    def pending(self, context: WaitContext) -> bool:
        """Whether any part justifies a step."""
        return any(part.pending(self.get(part), context) for part in self.kinds)

    def needs_clock(self, context: WaitContext, clock_us: int) -> bool:
        """Whether a part is pending that would not be at an earlier clock."""
        earlier = replace(context, outlook=replace(context.outlook, clock_us=clock_us))
        return any(
            part.pending(self.get(part), context) and not part.pending(self.get(part), earlier)
            for part in self.kinds
        )

    def wakes_at(self, context: WaitContext) -> list[float]:
        """When parts may become pending."""
        times = (part.wakes_at(self.get(part), context) for part in self.kinds)
        return [time for time in times if time is not None]

    def files(self) -> tuple[str, ...]:
        """The files in the store that the parts need, sorted."""
        return tuple(sorted({name for part in self.kinds for name in part.files(self.get(part))}))


def _raw(value: msgspec.Struct | object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _decode_planned(part: AnyPart, found: PlannedPart | None) -> Any:  # noqa: ANN401  (its own type)
    return None if found is None else msgspec.json.decode(found.planned, type=part.planned_type)
