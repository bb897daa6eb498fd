"""The controls of a step: one for each task, with its messages and its initial state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.messages import Control, FileTags, Load, Message
from anabranch.operators.states import state_shapes
from anabranch.plan.boundary import Seats
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import Group, Level
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.task.program import Program


def controls_of(
    program: Program,
    plan: Plan,
    states: Sequence[OperatorState],
    seating: Sequence[Seats],
    first: int,
    tags: FileTags = (),
) -> list[Control]:
    """The controls of the tasks in levels from ``first`` on; ``seating`` covers every level."""
    by_operator = {state.operator: state for state in states}
    return [
        Control(
            level.number,
            seat,
            group.name,
            worker,
            _owned(plan, group.region, worker),
            _messages(program, plan, group, worker, by_operator),
            plan.clock_ns,
            plan.step,
            plan.revision,
            tags if _sees_files(program, level) else (),
            _next_partitions(program, level, seating),
            plan.profile_of(group.region, worker),
        )
        for level in program.physical.levels[first:]
        for group in level.groups
        for worker, seat in seating[level.number].of(group.name).items()
    ]


def _next_partitions(program: Program, level: Level, seating: Sequence[Seats]) -> int | None:
    """The partitions of the exchange after a level, if there is one."""
    following = program.physical.levels[level.number + 1 : level.number + 2]
    return next((seating[each.number].partitions for each in following if each.exchange), None)


def _sees_files(program: Program, level: Level) -> bool:
    """Whether a level gets rows directly from a source or from the user's Spark code."""
    physical = program.physical
    sources = {source.id for source in physical.sources()}
    return any(e.producer in sources or physical.is_transform(e.producer) for e in level.inputs)


def _messages(
    program: Program, plan: Plan, group: Group, worker: int, states: Mapping[str, OperatorState]
) -> tuple[Message, ...]:
    loads = []
    for node in group.operators:
        operator = program.operators.get(node)
        if operator is not None:
            kept = [states[shape.name] for shape in state_shapes(operator)]
            loads += [Load(state.operator, state.runs, state.live) for state in kept]
    return messages_for(plan, group.region, worker, loads)


def _owned(plan: Plan, region: str | None, worker: int) -> BinSet:
    owners = next((each.workers for each in plan.placement if each.region == region), ())
    return BinSet.of(number for number, owner in enumerate(owners) if owner == worker)
