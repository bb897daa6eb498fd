"""What a node keeps of its orders: whatever comes, twice or late or for something else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import Fenced, MissingRun
from anabranch.node.node_machine import Duties
from anabranch.protocol.node import (
    CancelOrder,
    Closed,
    CloseOrder,
    CommitOrder,
    Done,
    InputLimit,
    NodeOrder,
    Open,
    OpenOrder,
    Running,
    StepOrder,
    StepResult,
)
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorShape, OperatorState, state_fingerprint
from anabranch.records.plan import Plan
from anabranch.records.run_list import Listed, RunInfo

LIMIT = InputLimit()


def opening(number: int, step: int = 0) -> OpenOrder:
    return OpenOrder(number, "pipeline", step, 0, None, (), (), (), {}, (), LIMIT)


def plan(step: int, revision: int = 0) -> Plan:
    return Plan(step, revision, 0, "code", (), (), 1)


def result(step: int, revision: int = 0) -> StepResult:
    return StepResult(step, revision, (), (), (), 0, 0, {})


def commit(step: int, *, replayed: bool = False) -> CommitOrder:
    return CommitOrder(step, None, (), LIMIT, replayed)


def opened(step: int = 0) -> Duties:
    duties = Duties()
    duties.take_note(opening(1, step))
    order = duties.begin_open()
    assert order is not None
    duties.has_opened(order, ())
    return duties


def test_a_lower_leader_is_refused_and_a_higher_one_wants_what_it_says_itself() -> None:
    duties = Duties()
    duties.fence(2)
    duties.take_note(opening(1))
    with pytest.raises(Fenced):
        duties.fence(1)
    duties.fence(2)
    assert duties.to_open is not None
    duties.fence(3)
    assert duties.begin_open() is None


def test_an_order_to_open_counts_once_and_the_newest_alone() -> None:
    duties = opened()
    duties.take_note(opening(1))
    assert duties.begin_open() is None
    duties.take_note(opening(3))
    duties.take_note(opening(2))
    order = duties.begin_open()
    assert order is not None
    assert order.number == 3
    duties.could_not_open(order, MissingRun("gone"))
    assert isinstance(duties.state, Closed)
    assert (duties.opened, duties.failed_open is None) == (3, False)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(StepOrder(plan(5)), id="step that was committed"),
        pytest.param(StepOrder(plan(7)), id="step after the next"),
        pytest.param(StepOrder(plan(6), opened=9), id="step of something else"),
        pytest.param(CancelOrder(6), id="cancel what does not run"),
        pytest.param(CloseOrder(opened=9), id="close something else"),
    ],
)
def test_what_does_not_fit_changes_nothing(order: NodeOrder) -> None:
    duties = opened(5)
    duties.take_note(order)
    assert (duties.to_run, duties.to_close, duties.cancelled) == (None, None, False)


def test_a_higher_revision_comes_after_the_one_that_runs_is_given_up() -> None:
    duties = opened()
    first, second = plan(1), plan(1, 1)
    duties.take_note(StepOrder(first))
    assert duties.to_run is first
    duties.take_note(StepOrder(second))
    assert duties.cancelled
    duties.has_failed(first, RuntimeError("killed"))
    assert (duties.to_run, duties.cancelled) == (second, False)
    duties.take_note(StepOrder(first))
    assert duties.to_run is second
    duties.has_run(second, result(1, 1))
    assert isinstance(duties.state, Open)
    assert duties.done == Done(1, 1)


def test_a_step_that_is_no_longer_wanted_comes_to_nothing() -> None:
    duties = opened()
    stale = plan(1)
    duties.take_note(StepOrder(stale))
    duties.take_note(opening(2))
    duties.begin_open()
    duties.has_run(stale, result(1))
    duties.has_failed(stale, RuntimeError("late"))
    assert (duties.ran, duties.failed_step) == (None, None)
    assert isinstance(duties.state, Closed)


def test_a_step_is_committed_once_and_not_before_it_ran() -> None:
    duties = opened()
    assert duties.commit(commit(1)) is None
    running = plan(1)
    duties.take_note(StepOrder(running))
    assert duties.commit(commit(1)) is None
    duties.has_run(running, result(1))
    assert duties.is_running
    assert duties.commit(commit(1)) == (running, result(1))
    assert duties.commit(commit(1)) is None
    assert (duties.committed, duties.is_running) == (1, False)


ORDERS = st.one_of(
    st.builds(opening, st.integers(1, 4), st.integers(0, 2)),
    st.builds(StepOrder, st.builds(plan, st.integers(1, 4), st.integers(0, 2)), st.integers(0, 3)),
    st.builds(CancelOrder, st.integers(1, 4)),
    st.builds(CloseOrder, opened=st.integers(0, 3)),
    st.builds(commit, st.integers(1, 4), replayed=st.booleans()),
)
WORK = st.sampled_from(["open", "cannot open", "run", "fail"])


def perform(duties: Duties, what: NodeOrder | str) -> None:
    match what:
        case CommitOrder():
            duties.commit(what)
        case "open" | "cannot open":
            order = duties.begin_open()
            if order is not None and what == "open":
                duties.has_opened(order, ())
            elif order is not None:
                duties.could_not_open(order, MissingRun("gone"))
        case "run" | "fail":
            running = duties.to_run
            if running is not None and what == "run":
                duties.has_run(running, result(running.step, running.revision))
            elif running is not None:
                duties.has_failed(running, RuntimeError("bad"))
        case str():
            raise ValueError(what)
        case _:
            duties.take_note(what)


@given(st.lists(ORDERS | WORK, max_size=40))
def test_an_order_that_comes_twice_changes_no_more_than_once(story: list[NodeOrder | str]) -> None:
    once, twice = Duties(), Duties()
    for what in story:
        perform(once, what)
        for _ in range(1 if isinstance(what, str) else 2):
            perform(twice, what)
    report = [{**vars(d), "version": 0, "beat": 0} for d in (once, twice)]
    assert report[0] == report[1]
    running = isinstance(once.state, Running)
    assert running == (once.to_run is not None)
    assert not (once.cancelled and not running)


def run(name: str, *bins: int) -> Listed:
    return Listed(RunInfo(name, "total", 1, 10, "00000000"), BinSet.of(bins))


def total(*runs: Listed) -> tuple[OperatorState, ...]:
    return (OperatorState(OperatorShape("total", "map", "r", "k int", "n int"), runs, (1, 1)),)


def test_what_a_node_stands_at_is_told_apart_before_and_after_the_commit() -> None:
    duties = Duties()
    duties.take_note(msgspec.structs.replace(opening(1), branch=3))
    order = duties.begin_open()
    assert order is not None
    duties.has_opened(order, total(run("a", 0)))
    before, after = (state_fingerprint(total(run(name, 0))) for name in "ab")
    assert (duties.branch, duties.stands, duties.reached) == (3, before, "")
    first = plan(1)
    duties.take_note(StepOrder(first))
    running = duties.to_run
    assert running is not None
    duties.has_run(running, msgspec.structs.replace(result(1), states=total(run("b", 0))))
    assert (duties.stands, duties.reached) == (before, after)
    duties.commit(commit(1))
    assert duties.stands == after
    duties.take_note(StepOrder(plan(2)))
    assert (duties.stands, duties.reached) == (after, "")


def test_a_fingerprint_is_of_the_runs_and_their_bins() -> None:
    states = [
        (),
        total(run("a", 0)),
        total(run("b", 0)),
        total(run("a", 0, 1)),
        total(run("a", 0), run("b", 0)),
        total(run("b", 0), run("a", 0)),
    ]
    assert len({state_fingerprint(each) for each in states}) == len(states)
    assert state_fingerprint(total()) == state_fingerprint(())
    again = msgspec.json.decode(msgspec.json.encode(states[-1]), type=tuple[OperatorState, ...])
    assert state_fingerprint(again) == state_fingerprint(states[-1])
