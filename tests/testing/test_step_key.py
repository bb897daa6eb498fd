"""What steps are remembered by: everything that a plan holds, but for what cannot matter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.messages import Acquire, Barrier, Collect, Control, Hold, Load, Prefetch
from anabranch.records.bins import BinSet
from anabranch.records.run_list import Listed, RunInfo
from anabranch.records.slices import RangeSlice
from anabranch.records.step import Assignment, Input, OperatorShape, OperatorState, Plan
from anabranch.rescale.controller import Rescale
from anabranch.rescale.moves import Move
from anabranch.rescale.step_moves import StepMoves
from anabranch.testing.plane.step_key import StepKeys

KEYS = StepKeys(clock=True, heard=False)

MOVE = Move("r", 1, 0, 1, keys=3, bytes=40)
PLACEMENT = (Assignment("r", 4, (0, 1)),)
PLAN = Plan(
    7,
    0,
    100,
    "code",
    (Input("orders", (RangeSlice(0, 2, 5),), msgspec.Raw(b'{"rows":5}')),),
    PLACEMENT,
    2,
    moves=StepMoves(1, PLACEMENT),
)
RUN = RunInfo("run/a", "seen", 3, 40, "abc")
STATE = OperatorState(
    OperatorShape("seen", "map", "r", "k string", "v int"), (Listed(RUN, BinSet.of([1])),), (0, 3)
)
CONTROL = Control(1, 5, "r", 1, BinSet.of([1]), (Load("seen", STATE.runs, STATE.live), Barrier(7)))

OTHER: dict[str, Any] = {
    "inputs": (Input("orders", (RangeSlice(0, 2, 6),), msgspec.Raw(b'{"rows":5}')),),
    "placement": (Assignment("r", 4, (1, 1)),),
    "moves": StepMoves(1, PLACEMENT, asked=True),
    "rescale": Rescale(),
    "acquire": (MOVE,),
    "collect": (MOVE,),
    "ahead": (MOVE,),
    "messages": (Barrier(8),),
    "owned": BinSet.of([0, 1]),
}
"""Another value than that of ``PLAN``, of its moves and of ``CONTROL``, where any text is not."""

OF_PLAN = {"revision", "rescale", "started_with"}
OF_MOVES = {"turn", "number", "prefetch", "allowance", "allowed", "migration"}
OF_CONTROL = {"partition", "worker"}
"""What cannot change the result. Whoever adds a field here says why in ``step_key``."""


def step_key(plan: Plan = PLAN, state: OperatorState = STATE, keys: StepKeys = KEYS) -> Any:
    return keys.step(plan, [state])


def task_key(plan: Plan = PLAN, control: Control = CONTROL, keys: StepKeys = KEYS) -> Any:
    return keys.task(plan, control, "rows")


def changed(value: Any, name: str) -> Any:
    """The value with something else in a field; nothing checks its type."""
    return msgspec.structs.replace(value, **{name: OTHER.get(name, 12345)})


@pytest.mark.parametrize("name", Plan.__struct_fields__)
def test_every_field_of_a_plan_counts_unless_it_is_said_why_not(name: str) -> None:
    assert (step_key(changed(PLAN, name)) == step_key()) == (name in OF_PLAN)
    # Tasks get their input, their placement and their moves by their control and their rows.
    told = OF_PLAN | {"inputs", "placement", "unkeyed_workers", "moves"}
    assert (task_key(changed(PLAN, name)) == task_key()) == (name in told)


@pytest.mark.parametrize("name", StepMoves.__struct_fields__)
def test_every_field_of_moves_counts_unless_it_is_said_why_not(name: str) -> None:
    plan = msgspec.structs.replace(PLAN, moves=changed(PLAN.moves, name))
    assert (step_key(plan) == step_key()) == (name in OF_MOVES)


@pytest.mark.parametrize("name", Control.__struct_fields__)
def test_every_field_of_a_control_counts_unless_it_is_said_why_not(name: str) -> None:
    assert (task_key(control=changed(CONTROL, name)) == task_key()) == (name in OF_CONTROL)


def test_a_field_that_a_plan_gets_one_day_counts() -> None:
    later: Any = msgspec.defstruct(
        "LaterPlan", [("parts", dict[str, msgspec.Raw])], bases=(Plan,), frozen=True, kw_only=True
    )
    fields = msgspec.structs.asdict(PLAN)
    one, same, other = (
        later(**fields, parts={"frontier": msgspec.Raw(text)}) for text in (b"1", b"1", b"2")
    )
    for key in (step_key, task_key):
        assert key(one) == key(same)
        assert key(one) != key(other)


def test_the_clock_counts_where_something_expires() -> None:
    later = msgspec.structs.replace(PLAN, clock_ns=PLAN.clock_ns + 1)
    timeless = StepKeys(clock=False, heard=False)
    for key in (step_key, task_key):
        assert key(later) != key(PLAN)
        assert key(later, keys=timeless) == key(PLAN, keys=timeless)


def test_where_a_source_stands_after_a_step_does_not_count() -> None:
    given = msgspec.structs.replace(PLAN.inputs[0], position=msgspec.Raw(b'{"rows":6}'))
    assert step_key(msgspec.structs.replace(PLAN, inputs=(given,))) == step_key()


def test_generations_and_weights_count_only_for_code_that_is_told_of_them() -> None:
    moves = StepMoves(1, PLACEMENT, acquire=(MOVE,))
    heavier = StepMoves(
        1, (Assignment("r", 5, (0, 1)),), acquire=(msgspec.structs.replace(MOVE, keys=9),)
    )
    one, other = (msgspec.structs.replace(PLAN, moves=each) for each in (moves, heavier))
    told, later = (
        msgspec.structs.replace(CONTROL, messages=(Acquire("r", g, BinSet.of([1])),))
        for g in (4, 5)
    )
    heard = StepKeys(clock=True, heard=True)
    assert step_key(one) == step_key(other)
    assert step_key(one, keys=heard) != step_key(other, keys=heard)
    assert task_key(control=told) == task_key(control=later)
    assert task_key(control=told, keys=heard) != task_key(control=later, keys=heard)


@pytest.mark.parametrize("kind", [Acquire, Collect, Hold])
def test_which_bins_a_message_names_counts(kind: type[Any]) -> None:
    """Bins that are held are not merged, also where there is no home to copy them to."""
    one, other = (
        msgspec.structs.replace(CONTROL, messages=(kind("r", 4, BinSet.of([bin])),))
        for bin in (0, 1)
    )
    assert task_key(control=one) != task_key(control=other)


def test_copies_ahead_do_not_count_without_homes() -> None:
    one, other = (
        msgspec.structs.replace(CONTROL, messages=(Prefetch("r", 4, BinSet.of([bin]), bin),))
        for bin in (0, 1)
    )
    assert task_key(control=one) == task_key(control=other)


def test_the_content_of_state_counts_and_the_names_of_its_files_do_not() -> None:
    def stated(**changes: Any) -> OperatorState:
        run = msgspec.structs.replace(RUN, **changes)
        return msgspec.structs.replace(STATE, runs=(Listed(run, BinSet.of([1])),))

    def told(state: OperatorState) -> Control:
        load = Load("seen", state.runs, state.live)
        return msgspec.structs.replace(CONTROL, messages=(load, Barrier(7)))

    renamed, other = stated(name="run/b"), stated(checksum="abd")
    fewer = msgspec.structs.replace(STATE, live=(0, 2))
    assert step_key(state=renamed) == step_key()
    assert task_key(control=told(renamed)) == task_key()
    for state in (other, fewer):
        assert step_key(state=state) != step_key()
        assert task_key(control=told(state)) != task_key()
