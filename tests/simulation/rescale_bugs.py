"""Bugs of rescaling, put in on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from anabranch.coordinator import recovering
from anabranch.coordinator.jobs import load as loading
from anabranch.messages import Control, Load, Message
from anabranch.node import core
from anabranch.node import step_runner as stepping
from anabranch.protocol.node import StepResult
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.run_list import Listed, replace, restrict
from anabranch.rescale import apply_request
from anabranch.rescale.controller import Rescale
from anabranch.rescale.moves import Move
from anabranch.rescale.step_moves import moves_of
from anabranch.testing.plane.computed_step import ComputedStep

Patch = pytest.MonkeyPatch


def collect_before_the_steps_data(patch: Patch) -> None:
    """What is handed over is the state of before the step that collects it."""

    def too_early(plan: Plan, before: OperatorState, after: OperatorState) -> OperatorState:
        bins = _bins(plan, before, "collect")
        old = restrict(before.runs, bins)
        return msgspec.structs.replace(
            after, runs=replace(after.runs, bins, old), live=_live(before, after, bins)
        )

    _change_result(patch, too_early)


def acquire_after_the_data(patch: Patch) -> None:
    """The new owner works on a bin's rows before it has the bin's state."""

    def too_late(plan: Plan, before: OperatorState, after: OperatorState) -> OperatorState:
        bins = _bins(plan, before, "acquire")
        return msgspec.structs.replace(after, runs=(*after.runs, *restrict(before.runs, bins)))

    _without_acquired(patch)
    _change_result(patch, too_late)


def two_owners_for_one_step(patch: Patch) -> None:
    """The old owner goes on with a bin in the step in which the new one has it."""

    def both(made: Control, region: str | None, moves: Sequence[Move]) -> Control:
        left = (m.bin for m in moves if (m.region, m.from_worker) == (region, made.worker))
        return msgspec.structs.replace(made, owned=made.owned | BinSet.of(left))

    _change_control(patch, both)


def an_operators_state_is_left_behind(patch: Patch) -> None:
    """A bin arrives without the state of an operator."""
    _without_acquired(patch)


def a_source_partition_is_read_by_both(patch: Patch) -> None:
    """While bins move, old and new reader both read."""
    read = ComputedStep._read

    def twice(self: Any) -> Any:
        attempts = read(self)
        if _moves(self._plan, "acquire"):
            read(self)
        return attempts

    patch.setattr(ComputedStep, "_read", twice)


def cancel_that_forgets_a_bin(patch: Patch) -> None:
    """Whoever cancels drops what is in hand-over."""
    cancel = apply_request._cancel

    def forgetting(rescale: Rescale) -> Rescale:
        made = cancel(rescale)
        return msgspec.structs.replace(made, handing=made.handing[1:])

    patch.setattr(apply_request, "_cancel", forgetting)


def second_rescale_from_a_stale_assignment(patch: Patch) -> None:
    """A second request goes out from where bins were before those in hand-over left."""
    start = apply_request._start

    def stale(rescale: Rescale, request: Any, placement: Any) -> Rescale:
        return start(msgspec.structs.replace(rescale, handing=()), request, placement)

    patch.setattr(apply_request, "_start", stale)


def crash_between_collect_and_acquire(patch: Patch) -> None:
    """Whoever comes back does not know what was collected."""
    know = recovering.adopt_journal

    def forgetful(memory: Any, journal: Any) -> None:
        know(memory, journal)
        memory.rescale = msgspec.structs.replace(memory.rescale, handing=())

    patch.setattr(recovering, "adopt_journal", forgetful)
    patch.setattr(loading, "adopt_journal", forgetful)


KeyChanges = Callable[[Plan, OperatorState, OperatorState], OperatorState]


def _change_result(patch: Patch, change: KeyChanges) -> None:
    """Let a step come to another state."""
    run_plan = stepping.run_plan

    def changed(*arguments: Any) -> StepResult:
        result = run_plan(*arguments)
        plan, states = arguments[-2:]
        before = {state.operator: state for state in states}
        after = (change(plan, before[state.operator], state) for state in result.states)
        return msgspec.structs.replace(result, states=tuple(after))

    patch.setattr(core, "run_plan", changed)


def _without_acquired(patch: Patch) -> None:
    """Let the state of acquired bins not come to their new owner."""

    def without(made: Control, region: str | None, moves: Sequence[Move]) -> Control:
        coming = (m.bin for m in moves if (m.region, m.to_worker) == (region, made.worker))
        arriving = BinSet.of(coming)
        messages = tuple(_less(message, arriving) for message in made.messages)
        return msgspec.structs.replace(made, messages=messages)

    _change_control(patch, without)


def _change_control(
    patch: Patch, change: Callable[[Control, str | None, Sequence[Move]], Control]
) -> None:
    """Let workers be told something else; ``change`` is given the region and what is acquired."""
    control = ComputedStep._control

    def changed(self: Any, level: Any, group: Any, worker: int) -> Control:
        made = control(self, level, group, worker)
        return change(made, group.region, _moves(self._plan, "acquire"))

    patch.setattr(ComputedStep, "_control", changed)


def _less(message: Message, bins: BinSet) -> Message:
    if not isinstance(message, Load):
        return message
    kept = (Listed(each.run, each.bins - bins) for each in message.runs)
    live = tuple(0 if number in bins else n for number, n in enumerate(message.live))
    return Load(message.operator, tuple(each for each in kept if each.bins), live)


def _moves(plan: Plan, which: str) -> Sequence[Move]:
    return () if moves_of(plan) is None else getattr(moves_of(plan), which)


def _bins(plan: Plan, state: OperatorState, which: str) -> BinSet:
    moves = _moves(plan, which)
    return BinSet.of(move.bin for move in moves if move.region == state.shape.region)


def _live(before: OperatorState, after: OperatorState, bins: BinSet) -> tuple[int, ...]:
    pairs = enumerate(zip(before.live, after.live, strict=True))
    return tuple(old if number in bins else new for number, (old, new) in pairs)


RESCALE_BUGS = (
    collect_before_the_steps_data,
    acquire_after_the_data,
    two_owners_for_one_step,
    an_operators_state_is_left_behind,
    a_source_partition_is_read_by_both,
    cancel_that_forgets_a_bin,
    second_rescale_from_a_stale_assignment,
    crash_between_collect_and_acquire,
)
