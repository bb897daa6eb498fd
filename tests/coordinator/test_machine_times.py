"""The machine and event time: when a step is taken, at which clock, and how the end comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.effects import Effect, Take, WriteCommit, WritePlan
from anabranch.coordinator.events import (
    CommitWritten,
    InputTaken,
    PlanWritten,
    ResultFetched,
    TimePassed,
)
from anabranch.coordinator.outlook import REPORT_SECONDS
from anabranch.coordinator.parts.frontiers import FRONTIERS
from anabranch.messages import Advance, PendingTimes, decode_message
from anabranch.progress.dataflow.times import (
    PART,
    ClockTime,
    Frontiers,
    HeldTime,
    InputTimes,
    OperatorTimes,
    PartitionTime,
    TimesReport,
)
from anabranch.protocol.node import Done, Offer, Open
from anabranch.protocol.time_graph import GraphOperator, TimedInput, TimeGraph
from anabranch.records.bin_set import BinSet
from anabranch.records.commit import Commit
from anabranch.records.plan import Input, Plan
from anabranch.records.times import EARLIEST, END_OF_TIME
from tests.coordinator.bench import FACTS, Bench, commit, journal, kinds, positions, read, result
from tests.coordinator.parts_kit import parts_with

SECOND = 1_000_000
LINE = (
    GraphOperator("first", "by-name", ("orders",)),
    GraphOperator("second", "by-name", ("first",)),
)
UNTIMED = TimeGraph((TimedInput("orders", "orders", timed=False),), LINE)
TIMED = TimeGraph((TimedInput("orders", "orders", timed=True, idle_us=30 * SECOND),), LINE)
BINS = BinSet.of([0])


def value(*, frontier: int = 90, latest: int = 90, **first: Any) -> Frontiers:
    """The orders have come to ``latest``, in a step at second 7."""
    partition = PartitionTime(None, 7 * SECOND, EARLIEST, latest)
    return Frontiers(
        (InputTimes("orders", "orders", frontier, (partition,)),),
        (OperatorTimes("first", frontier, **first), OperatorTimes("second", frontier)),
    )


def opened(graph: TimeGraph, at: Frontiers, seconds: float = 7.0) -> Bench:
    """A pipeline with a commit of step 7, at second 7 of the clock."""
    bench = Bench(info=msgspec.structs.replace(FACTS, times=graph), seconds=seconds)
    parts = parts_with(positions(7), frontiers=at)
    bench.open(journal(7, commit=commit(7, parts=parts, clock_ns=7 * 10**9)))
    return bench


def offered(bench: Bench, step: int = 8, rows: int = 0, **said: Any) -> list[Effect]:
    by_source = {"orders": rows} if rows else {}
    offer = Offer(step, rows, 0, by_source, False, said.pop("ended", False), **said)
    return bench.report(Open(step - 1), offer=offer, published={"out": step - 1})


def taken(bench: Bench, step: int = 8, *inputs: Input) -> Plan:
    (written,) = bench.send(InputTaken(step, inputs))
    assert isinstance(written, WritePlan)
    return written.plan


def committed(bench: Bench, plan: Plan, report: TimesReport | None = None) -> Commit:
    bench.send(PlanWritten(plan))
    bench.report(Open(plan.step), done=Done(plan.step, 0), published={"out": plan.step - 1})
    said = msgspec.Raw(msgspec.json.encode(report or TimesReport()))
    (written,) = bench.send(ResultFetched(result(plan.step, parts={PART: said})))
    assert isinstance(written, WriteCommit)
    bench.send(CommitWritten(written.commit, ours=True))
    return written.commit


def moves(plan: Plan) -> dict[str, tuple[int, int]]:
    said = [decode_message(each.message) for each in plan.parts[PART].messages]
    return {m.operator: (m.since, m.until) for m in said if isinstance(m, Advance)}


def source(**said: Any) -> Input:
    return Input("orders", (), msgspec.Raw(b"7"), **said)


# ------------------------------------------------------------------------------- the end of input


def test_operators_are_told_of_the_end_in_one_step_then_all_is_over() -> None:
    bench = opened(UNTIMED, Frontiers((InputTimes("orders", "orders"),)))
    over = {"ended": True, "ended_sources": ("orders",)}
    assert offered(bench, **over) == [Take(8)]
    plan = taken(bench, 8, source(ended=True))
    to_the_end = (EARLIEST, END_OF_TIME)
    assert moves(plan) == {"first": to_the_end, "second": to_the_end}
    found = FRONTIERS.of(committed(bench, plan))
    assert {each.frontier for each in found.operators} == {END_OF_TIME}
    assert kinds(offered(bench, 9, **over)) == ["CheckOrder"]


def test_the_end_of_one_of_several_sources_is_known_after_its_last_rows() -> None:
    bench = opened(UNTIMED, Frontiers())
    offered(bench, rows=1, ended=True, ended_sources=("orders",))
    last = msgspec.structs.replace(read(8)[0], ended=True)
    plan = taken(bench, 8, last)
    assert set(moves(plan).values()) == {(EARLIEST, EARLIEST)}
    assert FRONTIERS.of(committed(bench, plan)).inputs[0].ended
    assert offered(bench, 9) == [Take(9)], "the node need not say it again"
    assert set(moves(taken(bench, 9)).values()) == {(EARLIEST, END_OF_TIME)}


def test_a_source_that_gives_nothing_at_all_ends_without_a_step() -> None:
    bench = Bench(info=msgspec.structs.replace(FACTS, times=UNTIMED))
    bench.open(journal(0))
    effects = offered(bench, 1, ended=True, ended_sources=("orders",))
    assert kinds(effects) == ["CloseOrder"]


def test_a_dataflow_without_time_has_no_step_of_its_own_for_the_end() -> None:
    bench = opened(TimeGraph(), Frontiers())
    assert kinds(offered(bench, ended=True, ended_sources=("orders",))) == ["CheckOrder"]


# -------------------------------------------------------------------------- when a step is taken


def test_what_is_due_gets_a_step_at_the_clock_of_the_one_before() -> None:
    bench = opened(TIMED, value(latest=100, holds=(HeldTime(95, BINS),)), seconds=9.0)
    assert offered(bench) == [Take(8)]
    plan = taken(bench, 8, source())
    assert (plan.clock_ns, moves(plan)["first"]) == (7 * 10**9, (90, 100))
    left = TimesReport(pending=(PendingTimes("first", (0,), (120,)),))
    committed(bench, plan, left)
    assert offered(bench, 9) == [], "one empty step for a move of the frontier"


def test_a_frontier_that_moves_past_nothing_gets_no_step() -> None:
    bench = opened(TIMED, value(latest=100, holds=(HeldTime(100, BINS),)), seconds=9.0)
    assert offered(bench) == []


ASKED = {"asked": {"orders": 0.0}}


def test_an_idle_partition_is_waited_for_and_its_step_has_a_new_clock() -> None:
    """It was last read at second 7 and is idle 30 s later; 20 s after that a window closes."""
    pending = value(holds=(HeldTime(90 + 20 * SECOND - 1, BINS),))
    bench = opened(TIMED, pending, seconds=8.0)
    assert offered(bench, **ASKED) == []
    assert bench.machine.wakes_at() == pytest.approx(37.0, abs=0.01)
    bench.seconds = 37.2
    assert offered(bench, **ASKED) == []
    assert bench.machine.wakes_at() == pytest.approx(57.2, abs=0.2)
    bench.seconds = 57.0 + REPORT_SECONDS
    assert offered(bench, **ASKED) == [Take(8)]
    bench.seconds += 1
    plan = taken(bench, 8, source(asked_seconds=0.05))
    assert plan.clock_ns == int(bench.seconds * 1e9)
    since, until = moves(plan)["first"]
    # The source was asked before its input was: nobody knows what it has had since.
    assert (since, until) == (90, 90 + 20 * SECOND + int((REPORT_SECONDS - 0.05) * SECOND))


def test_a_source_that_nobody_asks_is_not_idle() -> None:
    bench = opened(TIMED, value(holds=(HeldTime(95, BINS),)), seconds=99.0)
    assert offered(bench) == []
    assert offered(bench, asked={"orders": 70.0}) == [], "it was asked before the time was over"
    assert bench.machine.wakes_at() is not None
    bench.seconds = 110.0
    assert bench.send(TimePassed()) == []


def test_input_that_was_taken_late_tells_when_its_source_was_asked() -> None:
    bench = opened(TIMED, value(holds=(HeldTime(95, BINS),)), seconds=60.0)
    assert offered(bench, **ASKED) == [Take(8)]
    plan = taken(bench, 8, source(asked_seconds=30.0))
    assert moves(plan)["first"] == (90, 90), "at second 30 it was not idle yet"


def test_a_timer_by_the_clock_has_a_step_with_a_new_clock() -> None:
    bench = opened(UNTIMED, value(wakes=(ClockTime(20 * SECOND, BINS),)), seconds=8.0)
    assert offered(bench) == []
    assert bench.machine.wakes_at() == pytest.approx(20.0, abs=0.01)
    bench.seconds = 20.5
    assert bench.send(TimePassed()) == [Take(8)]
    assert taken(bench, 8, source()).clock_ns == int(20.5e9)
