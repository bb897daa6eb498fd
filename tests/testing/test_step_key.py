"""What steps are remembered by: everything that a plan holds, but for what cannot matter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.messages import Acquire, Barrier, Collect, Control, Hold, Load, Message, Prefetch
from anabranch.records.bins import BinSet
from anabranch.records.placed import Assignment, OperatorShape, OperatorState
from anabranch.records.plan import Input, Plan, PlannedPart, WorkerMessage
from anabranch.records.run_list import Listed, RunInfo
from anabranch.records.slices import RangeSlice
from anabranch.rescale.step_moves import PART
from anabranch.testing.plane.step_key import StepKeys

KEYS = StepKeys(clock=True, heard=False)

PLAN = Plan(
    7,
    0,
    100,
    "code",
    (Input("orders", (RangeSlice(0, 2, 5),), msgspec.Raw(b'{"rows":5}')),),
    (Assignment("r", 4, (0, 1)),),
    2,
)
RUN = RunInfo("run/a", "seen", 3, 40, "abc")
STATE = OperatorState(
    OperatorShape("seen", "map", "r", "k string", "v int"), (Listed(RUN, BinSet.of([1])),), (0, 3)
)
CONTROL = Control(1, 5, "r", 1, BinSet.of([1]), (Load("seen", STATE.runs, STATE.live), Barrier(7)))


def told(*messages: Message) -> tuple[WorkerMessage, ...]:
    """Messages to worker 1, as they stand in a plan."""
    return tuple(WorkerMessage("r", 1, msgspec.Raw(msgspec.json.encode(each))) for each in messages)


def part(value: bytes) -> PlannedPart:
    return PlannedPart(msgspec.Raw(value), msgspec.Raw(value))


OTHER: dict[str, dict[str, Any]] = {
    "Plan": {
        "inputs": (Input("orders", (RangeSlice(0, 2, 6),), msgspec.Raw(b'{"rows":5}')),),
        "placement": (Assignment("r", 4, (1, 1)),),
        "parts": {"frontier": part(b"1")},
        "messages": told(Acquire("r", 4, BinSet.of([1]))),
        "helping": (("r", 3),),
    },
    "Control": {"messages": (Barrier(8),), "owned": BinSet.of([0, 1])},
}
"""Another value than that of ``PLAN`` and of ``CONTROL``, where a number will not do."""

OF_PLAN = {"revision", "started_with", "helping_next"}
OF_CONTROL = {"partition", "worker"}
"""What cannot change the result. Whoever adds a field here says why in ``step_key``."""


def step_key(plan: Plan = PLAN, state: OperatorState = STATE, keys: StepKeys = KEYS) -> Any:
    return keys.step(plan, [state])


def task_key(plan: Plan = PLAN, control: Control = CONTROL, keys: StepKeys = KEYS) -> Any:
    return keys.task(plan, control, "rows")


def changed(value: Any, name: str) -> Any:
    """The value with something else in a field; nothing checks its type."""
    other = OTHER[type(value).__name__].get(name, 12345)
    return msgspec.structs.replace(value, **{name: other})


@pytest.mark.parametrize("name", Plan.__struct_fields__)
def test_every_field_of_a_plan_counts_unless_it_is_said_why_not(name: str) -> None:
    assert (step_key(changed(PLAN, name)) == step_key()) == (name in OF_PLAN)
    # Tasks get these by their control and their rows.
    by_control = {"inputs", "placement", "unkeyed_workers", "messages", "helping"}
    assert (task_key(changed(PLAN, name)) == task_key()) == (name in OF_PLAN | by_control)


@pytest.mark.parametrize("name", Control.__struct_fields__)
def test_every_field_of_a_control_counts_unless_it_is_said_why_not(name: str) -> None:
    assert (task_key(control=changed(CONTROL, name)) == task_key()) == (name in OF_CONTROL)


def test_a_field_that_a_plan_gets_one_day_counts() -> None:
    later: Any = msgspec.defstruct("LaterPlan", [("tides", int, 0)], bases=(Plan,), frozen=True)
    fields = msgspec.structs.asdict(PLAN)
    one, same, other = (later(**fields, tides=tides) for tides in (1, 1, 2))
    for key in (step_key, task_key):
        assert key(one) == key(same)
        assert key(one) != key(other)


def test_every_part_counts_but_the_rescale_which_is_in_placement_and_messages() -> None:
    for name in (PART, "frontier"):
        one, other = (
            msgspec.structs.replace(PLAN, parts={name: part(value)}) for value in (b"1", b"2")
        )
        for key in (step_key, task_key):
            assert (key(one) == key(other)) == (name == PART)


def test_the_clock_counts_where_something_expires() -> None:
    later = msgspec.structs.replace(PLAN, clock_ns=PLAN.clock_ns + 1)
    timeless = StepKeys(clock=False, heard=False)
    for key in (step_key, task_key):
        assert key(later) != key(PLAN)
        assert key(later, keys=timeless) == key(PLAN, keys=timeless)


def test_where_a_source_stands_after_a_step_does_not_count() -> None:
    given = msgspec.structs.replace(PLAN.inputs[0], position=msgspec.Raw(b'{"rows":6}'))
    assert step_key(msgspec.structs.replace(PLAN, inputs=(given,))) == step_key()


def test_generations_count_only_for_code_that_is_told_of_them() -> None:
    heard = StepKeys(clock=True, heard=True)
    one, other = (Acquire("r", generation, BinSet.of([1])) for generation in (4, 5))
    plans = [msgspec.structs.replace(PLAN, messages=told(each)) for each in (one, other)]
    placed = msgspec.structs.replace(PLAN, placement=(Assignment("r", 5, (0, 1)),))
    controls = [msgspec.structs.replace(CONTROL, messages=(each,)) for each in (one, other)]
    for keys in (KEYS, heard):
        step_keys = [step_key(plan, keys=keys) for plan in plans]
        task_keys = [task_key(control=control, keys=keys) for control in controls]
        assert (step_keys[0] == step_keys[1]) == (keys is KEYS)
        assert (task_keys[0] == task_keys[1]) == (keys is KEYS)
        assert (step_key(placed, keys=keys) == step_key(keys=keys)) == (keys is KEYS)


@pytest.mark.parametrize("kind", [Acquire, Collect, Hold])
def test_which_bins_a_message_names_counts(kind: type[Any]) -> None:
    """Bins that are held are not merged, also where there is no home to copy them to."""
    one, other = (kind("r", 4, BinSet.of([bin])) for bin in (0, 1))
    for mine, others in zip(keys_with(one), keys_with(other), strict=True):
        assert mine != others


def test_copies_ahead_do_not_count_without_homes() -> None:
    one, other = (Prefetch("r", 4, BinSet.of([bin]), bin) for bin in (0, 1))
    assert keys_with(one) == keys_with(other)


def keys_with(message: Message) -> tuple[Any, Any]:
    """The keys of a step and of a task whose worker is told something."""
    plan = msgspec.structs.replace(PLAN, messages=told(message))
    return step_key(plan), task_key(control=msgspec.structs.replace(CONTROL, messages=(message,)))


def test_the_content_of_state_counts_and_the_names_of_its_files_do_not() -> None:
    def stated(**changes: Any) -> OperatorState:
        run = msgspec.structs.replace(RUN, **changes)
        return msgspec.structs.replace(STATE, runs=(Listed(run, BinSet.of([1])),))

    def loaded(state: OperatorState) -> Control:
        load = Load("seen", state.runs, state.live)
        return msgspec.structs.replace(CONTROL, messages=(load, Barrier(7)))

    renamed, other = stated(name="run/b"), stated(checksum="abd")
    fewer = msgspec.structs.replace(STATE, live=(0, 2))
    assert step_key(state=renamed) == step_key()
    assert task_key(control=loaded(renamed)) == task_key()
    for state in (other, fewer):
        assert step_key(state=state) != step_key()
        assert task_key(control=loaded(state)) != task_key()
