"""The frontiers of steps: where inputs and operators stand, what is due, and what holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.parts.frontiers import BETWEEN_CLOCKS, FRONTIERS
from anabranch.coordinator.parts.port import CommitContext, PlanContext, WaitContext
from anabranch.coordinator.settings import Settings
from anabranch.messages import Advance, LateRows, PendingTimes, ReadTime
from anabranch.progress.dataflow.outlook import SourceOutlook, StepOutlook
from anabranch.progress.dataflow.step import after_step, due_at, is_due, plan_frontiers
from anabranch.progress.dataflow.times import (
    PART,
    ClockTime,
    Frontiers,
    HeldTime,
    InputTimes,
    OperatorTimes,
    PartitionTime,
    PlannedFrontiers,
    TimesReport,
)
from anabranch.protocol.time_graph import GraphOperator, TimedInput, TimeGraph
from anabranch.records.bin_set import BinSet
from anabranch.records.plan import Input
from anabranch.records.slices import FileSlice, RangeSlice, Slice
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.rescale.loads import Loads
from tests.coordinator.bench import plan, result

BIDS = TimedInput("bids", "bids", timed=True, lateness_us=4, idle_us=30)
ASKS = TimedInput("asks", "asks", timed=True, idle_us=30)
SUMS = GraphOperator("sums", "by-item", ("bids",))
TOPS = GraphOperator("tops", "by-window", ("sums",))
ROW = TimeGraph((BIDS,), (SUMS, TOPS))
#: the second operator has an input of its own
FORK = TimeGraph((BIDS, ASKS), (SUMS, GraphOperator("joined", "by-window", ("sums", "asks"))))
BINS = BinSet.of([0])


def partitions(*latest: int | None, since: int = 0) -> tuple[PartitionTime, ...]:
    return tuple(PartitionTime(n, since, EARLIEST, time) for n, time in enumerate(latest))


def value(
    *latest: int | None,
    frontier: int = EARLIEST,
    since: int = 0,
    holds: tuple[int, ...] = (),
    reached: int = EARLIEST,
) -> Frontiers:
    """The bids have come this far, and the sums have these times pending."""
    held = tuple(HeldTime(time, BINS) for time in holds)
    return Frontiers(
        (InputTimes("bids", "bids", frontier, partitions(*latest, since=since)),),
        (OperatorTimes("sums", reached, held), OperatorTimes("tops", reached)),
    )


def outlook(clock: int = 0, **bids: Any) -> StepOutlook:
    return StepOutlook(clock, (SourceOutlook("bids", **bids),))


def untils(planned: PlannedFrontiers) -> dict[str, int]:
    return {each.name: each.until for each in planned.operators}


def of_sums(before: Frontiers, now: StepOutlook) -> int:
    return plan_frontiers(ROW, before, now).until("sums")


# ------------------------------------------------------------------------------------- the inputs


@pytest.mark.parametrize(
    ("latest", "frontier"),
    [((100,), 96), ((100, 50), 46), ((50, 100), 46), ((100, None), EARLIEST)],
    ids=["lateness", "least of two", "least of two, reversed", "one without rows"],
)
def test_a_frontier_is_the_least_time_of_all_partitions(
    latest: tuple[int | None, ...], frontier: int
) -> None:
    planned = plan_frontiers(ROW, value(*latest), outlook())
    assert untils(planned) == {"sums": frontier, "tops": frontier}
    assert planned.inputs[0].frontier == frontier


def test_a_frontier_never_goes_back() -> None:
    before = value(100, 50, frontier=80, reached=90)
    assert untils(plan_frontiers(ROW, before, outlook())) == {"sums": 90, "tops": 90}


IDLE = {"asked_us": 30}


@pytest.mark.parametrize(
    ("clock", "source", "frontier"),
    [
        (30, IDLE, 96),
        (29, {"asked_us": 29}, 46),
        (30, {"asked_us": None}, 46),
        (60, {"asked_us": 29}, 46),
        (30, IDLE | {"reading": frozenset([1])}, 46),
        (30, IDLE | {"reading": frozenset([None])}, 46),
        (30, IDLE | {"reading": frozenset([0])}, 96),
    ],
    ids=["idle", "too early", "paused", "not asked since", "rows", "some rows", "other rows"],
)
def test_an_idle_partition_holds_nothing_back(
    clock: int, source: dict[str, Any], frontier: int
) -> None:
    """It is idle only if it was silent for long enough, was asked since, and has nothing."""
    late = PartitionTime(1, 0, EARLIEST, 50)
    fresh = PartitionTime(0, 10, EARLIEST, 100)
    before = Frontiers((InputTimes("bids", "bids", EARLIEST, (fresh, late)),))
    assert of_sums(before, outlook(clock, **source)) == frontier


def test_if_all_are_idle_the_frontier_goes_on_with_the_clock() -> None:
    before = value(100, frontier=96, since=1000)
    assert of_sums(before, outlook(1030, asked_us=1030)) == 96
    assert of_sums(before, outlook(1050, asked_us=1050)) == 116
    assert of_sums(before, outlook(1050, asked_us=1040)) == 106, "nobody has asked since"


def test_the_clock_counts_once_whatever_steps_are_between() -> None:
    step_by_step = value(100, frontier=96, since=1000)
    for clock in (1010, 1035, 1036, 1050):
        planned = plan_frontiers(ROW, step_by_step, outlook(clock, asked_us=clock))
        step_by_step = after_step(step_by_step, planned, (), clock, TimesReport())
    at_once = plan_frontiers(ROW, value(100, frontier=96, since=1000), outlook(1050, asked_us=1050))
    assert step_by_step.operator("sums").frontier == at_once.until("sums") == 116


def test_the_last_to_fall_idle_is_where_the_frontier_goes_on_from() -> None:
    early, late = PartitionTime(0, 0, EARLIEST, 500), PartitionTime(1, 5, EARLIEST, 50)
    before = Frontiers((InputTimes("bids", "bids", EARLIEST, (early, late)),))
    assert of_sums(before, outlook(36, asked_us=36)) == 47


def test_without_any_time_there_is_nothing_to_go_on_from() -> None:
    assert of_sums(value(None), outlook(99, asked_us=99)) == EARLIEST


def test_a_new_partition_begins_at_the_frontier_of_its_input() -> None:
    before = value(100, frontier=96, since=10)
    planned = plan_frontiers(ROW, before, outlook(20, partitions=2))
    assert planned.inputs[0].partitions[1] == PartitionTime(1, 20, 96)
    assert planned.until("sums") == 96


def test_times_that_are_not_known_by_partition_are_those_of_the_input() -> None:
    planned = plan_frontiers(ROW, Frontiers(), outlook(5, partitions=3))
    assert planned.inputs[0].partitions == (PartitionTime(None, 5),)
    after = read(Frontiers(), planned, 7, [RangeSlice(2, 0, 9)], ReadTime("bids", None, 70))
    assert after.inputs[0].partitions == (PartitionTime(None, 7, EARLIEST, 70),)
    assert of_sums(after, outlook(8, partitions=3)) == 66


def test_the_first_report_by_partition_tells_that_there_are_some() -> None:
    planned = plan_frontiers(ROW, Frontiers(), outlook(5, partitions=2))
    after = read(Frontiers(), planned, 7, [RangeSlice(1, 0, 9)], ReadTime("bids", 1, 70))
    assert after.inputs[0].partitions == (PartitionTime(1, 7, EARLIEST, 70),)
    assert of_sums(after, outlook(8, partitions=2)) == EARLIEST, "the other one has no time yet"


def test_a_source_without_times_holds_until_it_ends() -> None:
    graph = TimeGraph((TimedInput("bids", "bids", timed=False),), (SUMS,))
    assert plan_frontiers(graph, Frontiers(), outlook(99, asked_us=99)).until("sums") == EARLIEST
    assert plan_frontiers(graph, Frontiers(), outlook(ended=True)).until("sums") == END_OF_TIME


@pytest.mark.parametrize(
    ("source", "over"),
    [({"ended": True}, True), ({"ended": True, "reading": frozenset([0])}, False), ({}, False)],
    ids=["ended", "its last rows are read", "goes on"],
)
def test_the_end_of_a_source_is_a_frontier_at_the_end_of_time(
    source: dict[str, Any], over: bool
) -> None:
    planned = plan_frontiers(ROW, value(100, holds=(120, 180)), outlook(**source))
    assert (set(untils(planned).values()) == {END_OF_TIME}) is over


def test_what_was_read_last_is_committed_before_the_end_counts() -> None:
    before = value(100)
    planned = plan_frontiers(ROW, before, outlook(ended=True, reading=frozenset([0])))
    rows = Input("bids", (RangeSlice(0, 0, 9),), msgspec.Raw(b"9"), ended=True)
    after = after_step(before, planned, (rows,), 7, TimesReport())
    assert of_sums(after, outlook()) == END_OF_TIME


def read(
    before: Frontiers, planned: PlannedFrontiers, clock: int, slices: list[Slice], *times: ReadTime
) -> Frontiers:
    given = Input("bids", tuple(slices), msgspec.Raw(b"9"))
    return after_step(before, planned, (given,), clock, TimesReport(times))


FILE: list[Slice] = [FileSlice("/in/a.json", 1, 1)]


@pytest.mark.parametrize(
    ("slices", "times", "partitions"),
    [
        ([RangeSlice(0, 0, 9)], [(0, 70)], [(7, 70), (0, 50)]),
        ([RangeSlice(0, 0, 9)], [(0, 30)], [(7, 60), (0, 50)]),
        ([RangeSlice(1, 0, 9)], [], [(0, 60), (7, 50)]),
        (FILE, [(1, 80)], [(0, 60), (7, 80)]),
        (FILE, [], [(7, 60), (7, 50)]),
        ([], [], [(0, 60), (0, 50)]),
    ],
    ids=["read", "back in time", "rows without a time", "told by partition", "unknown", "nothing"],
)
def test_a_partition_keeps_its_latest_time_and_when_it_was_read(
    slices: list[Slice], times: list[tuple[int, int]], partitions: list[tuple[int, int]]
) -> None:
    before = value(60, 50)
    planned = plan_frontiers(ROW, before, outlook(7))
    after = read(before, planned, 7, slices, *(ReadTime("bids", n, t) for n, t in times))
    found = [(each.since_us, each.latest) for each in after.inputs[0].partitions]
    assert found == partitions


# ---------------------------------------------------------------------------------- the operators


def test_what_falls_due_upstream_does_not_hold_back_in_the_same_step() -> None:
    planned = plan_frontiers(ROW, value(100, holds=(20, 60)), outlook())
    assert untils(planned) == {"sums": 96, "tops": 96}


def idle_bids(*holds: int, wakes: tuple[ClockTime, ...] = ()) -> Frontiers:
    """The bids are idle at 100, the asks have come to 500."""
    held = tuple(HeldTime(time, BINS) for time in holds)
    return Frontiers(
        (
            InputTimes("bids", "bids", 100, partitions(104)),
            InputTimes("asks", "asks", 500, partitions(500, since=1000)),
        ),
        (OperatorTimes("sums", 100, held, wakes), OperatorTimes("joined", 100)),
    )


def both(clock: int, **bids: Any) -> StepOutlook:
    quiet = {"asked_us": clock} | bids
    return StepOutlook(clock, (SourceOutlook("bids", **quiet), SourceOutlook("asks")))


def test_nobody_waits_for_an_idle_input() -> None:
    assert untils(plan_frontiers(FORK, idle_bids(), both(30))) == {"sums": 100, "joined": 500}


def test_r4_a_frontier_never_passes_a_held_time() -> None:
    assert untils(plan_frontiers(FORK, idle_bids(150), both(30))) == {"sums": 100, "joined": 150}


def test_r4_what_falls_due_may_leave_something_behind() -> None:
    """Only the least time of a bin is known: what is next is not before the frontier."""
    assert untils(plan_frontiers(FORK, idle_bids(150), both(90))) == {"sums": 160, "joined": 160}


def test_r4_timers_by_the_clock_have_output_at_the_frontier() -> None:
    before = idle_bids(wakes=(ClockTime(5000, BINS),))
    assert untils(plan_frontiers(FORK, before, both(30))) == {"sums": 100, "joined": 100}


def test_an_input_that_was_idle_begins_where_others_have_come_to() -> None:
    planned = plan_frontiers(FORK, idle_bids(), both(30))
    ahead = after_step(idle_bids(), planned, (), 30, TimesReport())
    awake = plan_frontiers(FORK, ahead, both(31, reading=frozenset([0])))
    assert untils(awake) == {"sums": 500, "joined": 500}


def test_a_frontier_lags_behind_that_of_an_outer_join() -> None:
    lagging = GraphOperator("sums", "by-item", ("bids",), lag_us=30)
    graph = TimeGraph((BIDS,), (lagging, TOPS))
    planned = plan_frontiers(graph, value(100, holds=(110,)), outlook())
    assert untils(planned) == {"sums": 96, "tops": 66}
    over = plan_frontiers(graph, value(100, holds=(110,)), outlook(ended=True))
    assert untils(over) == {"sums": END_OF_TIME, "tops": END_OF_TIME}


def test_holds_are_those_that_tasks_report_whoever_owns_the_bins() -> None:
    before = value(100, holds=(120,))
    planned = plan_frontiers(ROW, before, outlook())
    report = TimesReport(
        pending=(
            PendingTimes("sums", (0, 3), (150, 120)),
            PendingTimes("sums", (2,), (120,)),
            PendingTimes("tops", (1,), (170,)),
        ),
        wakes=(PendingTimes("tops", (1,), (9,)),),
        late=(LateRows("sums", 2), LateRows("sums", 3)),
    )
    after = after_step(before, planned, (), 7, report)
    held = (HeldTime(120, BinSet.of([2, 3])), HeldTime(150, BinSet.of([0])))
    assert after.operator("sums") == OperatorTimes("sums", 96, held, (), 5)
    tops = after.operator("tops")
    assert (tops.holds, tops.wakes) == (
        (HeldTime(170, BinSet.of([1])),),
        (ClockTime(9, BinSet.of([1])),),
    )
    again = after_step(after, planned, (), 8, TimesReport())
    assert (again.operator("sums").holds, again.operator("sums").late) == ((), 5)


# ------------------------------------------------------------------------------- reasons for steps


@pytest.mark.parametrize(
    ("before", "now", "due"),
    [
        (value(100, reached=90, holds=(95,)), outlook(), True),
        (value(100, reached=90, holds=(96,)), outlook(), False),
        (value(100, reached=90), outlook(), False),
        (value(100, reached=96, holds=(95,)), outlook(), False),
        (value(100, reached=90), outlook(ended=True), True),
        (value(100, reached=END_OF_TIME), outlook(ended=True), False),
        (Frontiers(), outlook(ended=True), False),
        (value(100, reached=96, holds=(115,)), outlook(60, asked_us=60), True),
        (value(100, reached=96, holds=(115,)), outlook(60, asked_us=49), False),
    ],
    ids=[
        "something falls due",
        "nothing yet",
        "nothing pending",
        "was due before",
        "the end",
        "ended",
        "nothing was ever read",
        "due by the clock",
        "not asked since",
    ],
)
def test_a_step_without_input_is_taken_only_where_something_is_due(
    before: Frontiers, now: StepOutlook, due: bool
) -> None:
    assert is_due(ROW, before, now) is due


def test_a_move_of_the_frontier_is_a_reason_for_one_step() -> None:
    before = value(100, reached=90, holds=(95,))
    planned = plan_frontiers(ROW, before, outlook())
    kept = TimesReport(pending=(PendingTimes("sums", (0,), (95,)),))
    # Even if an operator does not let go of it.
    assert not is_due(ROW, after_step(before, planned, (), 0, kept), outlook())


@pytest.mark.parametrize(("clock", "due"), [(8, False), (9, True)])
def test_a_timer_by_the_clock_is_a_reason_for_a_step(clock: int, due: bool) -> None:
    timed = OperatorTimes("tops", wakes=(ClockTime(9, BINS), ClockTime(20, BINS)))
    before = Frontiers(operators=(timed,))
    assert is_due(ROW, before, outlook(clock)) is due
    assert due_at(ROW, before, outlook(clock)) == (None if due else 9)
    assert not is_due(TimeGraph(), before, outlook(clock)), "the operator is gone"


@pytest.mark.parametrize(
    ("before", "now", "moment"),
    [
        (value(100, since=10, holds=(120,)), outlook(20, asked_us=20), 40),
        (value(100, since=10, frontier=96, holds=(120,)), outlook(50, asked_us=50), 65),
        (value(100, since=10, holds=(120,)), outlook(20), None),
        (value(100, since=10), outlook(20, asked_us=20), None),
    ],
    ids=["falls idle", "goes on to what is pending", "paused", "nothing is pending"],
)
def test_when_to_look_again(before: Frontiers, now: StepOutlook, moment: int | None) -> None:
    assert due_at(ROW, before, now) == moment
    if moment is not None:
        later = now.later(moment - now.clock_us)
        assert due_at(ROW, before, later) != moment, "it would be waited for without end"


def test_what_waits_for_something_else_is_not_waited_for_by_the_clock() -> None:
    """The asks hold the second operator: no clock moves it, however near its next window is."""
    held = OperatorTimes("joined", 500, (HeldTime(500, BINS),))
    before = msgspec.structs.replace(idle_bids(), operators=(OperatorTimes("sums", 100), held))
    assert due_at(FORK, before, both(1010)) is None


def test_a_drain_closes_all_inputs_once_what_was_offered_is_read() -> None:
    draining = StepOutlook(0, (SourceOutlook("bids"),), draining=True)
    reading = StepOutlook(0, (SourceOutlook("bids", frozenset([0])),), draining=True)
    before = value(100, holds=(120,))
    assert not plan_frontiers(ROW, before, reading).drained
    planned = plan_frontiers(ROW, before, draining)
    assert (planned.drained, set(untils(planned).values())) == (True, {END_OF_TIME})
    assert is_due(ROW, before, draining)
    assert is_due(TimeGraph(), Frontiers(), draining), "also where nothing has a time"
    after = after_step(before, planned, (), 0, TimesReport())
    assert after.drained
    assert not is_due(ROW, after, draining)


# ---------------------------------------------------------------------------------------- the part


def plan_context(graph: TimeGraph, now: StepOutlook) -> PlanContext:
    return PlanContext(8, (), (), Loads, (), Settings(), times=graph, outlook=now)


def test_the_part_tells_every_operator_its_frontier() -> None:
    made = FRONTIERS.plan(value(100, reached=90), plan_context(ROW, outlook()))
    assert made is not None
    assert made.region_messages == (
        ("by-item", Advance("sums", 90, 96)),
        ("by-window", Advance("tops", 90, 96)),
    )


def test_a_dataflow_without_time_has_nothing_in_its_plans() -> None:
    assert FRONTIERS.plan(Frontiers(), plan_context(TimeGraph(), StepOutlook(5))) is None
    assert FRONTIERS.after_commit(Frontiers(), None, CommitContext(plan(8), result(8), 0.1)) == (
        Frontiers()
    )
    assert msgspec.json.encode(Frontiers()) == b"{}"


def test_the_part_takes_over_what_the_node_reports() -> None:
    before = value(100)
    made = FRONTIERS.plan(before, plan_context(ROW, outlook()))
    assert made is not None
    report = TimesReport(pending=(PendingTimes("sums", (0,), (150,)),))
    told = result(8, parts={PART: msgspec.Raw(msgspec.json.encode(report))})
    planned = msgspec.json.decode(msgspec.json.encode(made.planned), type=PlannedFrontiers)
    after = FRONTIERS.after_commit(before, planned, CommitContext(plan(8), told, 0.1))
    assert after.operator("sums") == OperatorTimes("sums", 96, (HeldTime(150, BINS),))
    assert msgspec.json.decode(msgspec.json.encode(after), type=Frontiers) == after


def test_the_part_wakes_by_the_monotonic_clock() -> None:
    before = value(100, since=10, holds=(120,))
    context = WaitContext(77.0, ROW, outlook(20, asked_us=20))
    assert FRONTIERS.wakes_at(before, context) == 77.0 + 20e-6 + BETWEEN_CLOCKS
    assert not FRONTIERS.pending(before, context)
    assert FRONTIERS.wakes_at(Frontiers(), context) is None
