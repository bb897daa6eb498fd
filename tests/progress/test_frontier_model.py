"""Every course that a small dataflow can take, with the functions that pipelines use.

Two partitions, two regions of one operator each, two bins, times from 0 to 3, one rescale,
partitions that fall silent and sources that end. In every course no frontier passes a held time or
goes back, every row that is not late is in exactly one result of each operator, and the end is
reached. A crash may come anywhere: whatever is journalled is read again, and each step runs a
second time, on other workers, with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
import pytest

from anabranch.coordinator.parts.frontiers import FRONTIERS
from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.port import CommitContext, PlanContext, WaitContext
from anabranch.coordinator.settings import Settings
from anabranch.messages import Advance, ReadTime
from anabranch.progress.dataflow.outlook import SourceOutlook, StepOutlook
from anabranch.progress.dataflow.times import PART, Frontiers, PlannedFrontiers, TimesReport
from anabranch.protocol.node import StepResult
from anabranch.protocol.time_graph import GraphOperator, TimedInput, TimeGraph
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import RangeSlice
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.rescale.loads import Loads
from tests.progress.window_engine import Row, Window, pending, run_step

V = TypeVar("V", bound=msgspec.Struct)

TIMES = (0, 1, 2, 3)
IDLE = 1
CLOCKS = 2
SECONDS = 60.0


@dataclass(frozen=True)
class Setup:
    """A dataflow, and which rows it may get: by source, how many of each partition.

    ``times`` are those of sources that do not have all of them. ``owners`` are those of the two
    bins at first; a rescale makes them (0, 1). ``hangs``: sources may not be asked for a while.
    """

    graph: TimeGraph
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    owners: tuple[int, int]
    times: tuple[tuple[str, tuple[int, ...]], ...] = ()
    hangs: bool = False


#: two partitions of one source, two operators in a row
LINE = Setup(
    TimeGraph(
        (TimedInput("a", "a", timed=True, idle_us=IDLE),),
        (GraphOperator("first", "r1", ("a",)), GraphOperator("second", "r2", ("first",))),
    ),
    (("a", (2, 1)),),
    (0, 0),
)
HUNG = replace(LINE, rows=(("a", (1, 1)),), hangs=True)
#: two sources of one partition each, which meet in the second operator; one falls idle
FORK = Setup(
    TimeGraph(
        (
            TimedInput("a", "a", timed=True, lateness_us=1, idle_us=IDLE),
            TimedInput("b", "b", timed=True),
        ),
        (GraphOperator("first", "r1", ("a",)), GraphOperator("second", "r2", ("first", "b"))),
    ),
    (("a", (2,)), ("b", (1,))),
    (0, 1),
    (("b", (0, 5)),),
)


@dataclass(frozen=True)
class Course:
    """Where a run stands after a commit, and what may still happen in it."""

    value: Frontiers = field(default_factory=Frontiers)
    clock: int = 0
    step_clock: int = 0
    #: the clock at which each source was last asked, in the order of the setup
    asked: tuple[int, ...] = ()
    ended: frozenset[str] = frozenset()
    #: the times of the rows of each partition
    given: tuple[tuple[tuple[int, ...], ...], ...] = ()
    windows: tuple[Window, ...] = ()
    #: for each operator, the rows in its results
    results: tuple[tuple[str, tuple[int, ...]], ...] = ()
    late: frozenset[int] = frozenset()
    owners: tuple[int, int] = (0, 0)


@dataclass
class Model:
    """The real functions, and what must be true of them."""

    setup: Setup
    states: int = 0
    steps: int = 0

    def explore(self, seconds: float) -> None:
        """Take every course to its end."""
        graph = self.setup.graph
        first = Course(
            owners=self.setup.owners,
            asked=tuple(0 for _ in self.setup.rows),
            given=tuple(tuple(() for _ in counts) for _, counts in self.setup.rows),
        )
        seen, waiting = {first}, [first]
        until = time.process_time() + seconds
        while waiting:
            assert time.process_time() < until, f"{len(seen)} states, and {len(waiting)} to go"
            course = waiting.pop()
            for following in self.after(course):
                assert not is_behind(following.value, course.value), (course, following)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if self.is_over(course):
                check_end(self.setup, course)
        self.states = len(seen)
        assert any(len(course.ended) == len(graph.inputs) for course in seen)

    def after(self, course: Course) -> Iterator[Course]:
        """Everything that may happen next."""
        if self.is_over(course):
            return
        if course.clock < CLOCKS:
            for asked in (True, False) if self.setup.hangs else (True,):
                heard = tuple(course.clock + 1 if asked else each for each in course.asked)
                yield replace(course, clock=course.clock + 1, asked=heard)
        for name, _ in self.setup.rows:
            if name not in course.ended:
                yield replace(course, ended=course.ended | {name})
        if course.owners == (0, 0):
            # A rescale moves a bin, in a step of its own without input.
            yield self.inserted(replace(course, owners=(0, 1)))
        for rows in self.next_rows(course):
            yield self.step(course, rows, course.clock)
        if course.step_clock < course.clock:
            yield self.step(course, [], course.clock)
        if self.is_pending(course):
            made = self.inserted(course)
            assert not self.is_pending(made, made.step_clock), f"two empty steps: {course}"
            yield made

    def is_over(self, course: Course) -> bool:
        return len(course.ended) == len(self.setup.rows) and not self.is_pending(course)

    def is_pending(self, course: Course, clock: int | None = None) -> bool:
        at = course.clock if clock is None else clock
        now = StepOutlook(at, tuple(self.sources(course, [])))
        return FRONTIERS.pending(course.value, WaitContext(0.0, self.setup.graph, now))

    def next_rows(self, course: Course) -> Iterator[list[Row]]:
        """A row of one partition, or of two, with any times."""
        singles = []
        for place, (name, counts) in enumerate(self.setup.rows):
            for partition, count in enumerate(counts):
                had = len(course.given[place][partition])
                if had < count and name not in course.ended:
                    number = place * 100 + partition * 10 + had
                    times = dict(self.setup.times).get(name, TIMES)
                    # One source has rows in both bins; of two, each has a bin of its own.
                    bin = number % 2 if len(self.setup.rows) == 1 else place
                    singles.append([Row(number, time, bin, name) for time in times])
        for one in singles:
            yield from ([row] for row in one)
        if len(singles) > 1:
            yield from ([row, other] for row in singles[0] for other in singles[1])

    def sources(self, course: Course, rows: list[Row]) -> Iterator[SourceOutlook]:
        for (name, counts), asked in zip(self.setup.rows, course.asked, strict=True):
            read = frozenset(partition_of(row) for row in rows if row.input == name)
            ended = name in course.ended
            yield SourceOutlook(name, read, None if ended else asked, ended, len(counts))

    def inserted(self, course: Course) -> Course:
        """A step without input; it makes time pass only if something falls due by that."""
        sources = tuple(self.sources(course, []))
        context = WaitContext(0.0, self.setup.graph, StepOutlook(course.clock, sources))
        parts = Parts.initial((FRONTIERS,)).put(FRONTIERS, course.value)
        later = parts.needs_clock(context, course.step_clock)
        return self.step(course, [], course.clock if later else course.step_clock)

    def step(self, course: Course, rows: list[Row], clock: int) -> Course:
        """Plan a step, run it and commit it."""
        self.steps += 1
        graph = self.setup.graph
        now = StepOutlook(clock, tuple(self.sources(course, rows)))
        planned = FRONTIERS.plan(
            course.value, PlanContext(1, (), (), Loads, (), Settings(), times=graph, outlook=now)
        )
        assert planned is not None
        assert isinstance(planned.planned, PlannedFrontiers)
        moves = {
            message.operator: (message.since, message.until)
            for _, message in planned.region_messages
            if isinstance(message, Advance)
        }
        check_moves(graph, course, moves)
        self.check_inputs(course, now, planned.planned)
        made = run_step(graph, course.windows, rows, moves)
        inputs = tuple(
            Input(
                name,
                tuple(RangeSlice(partition_of(r), 0, 1) for r in rows if r.input == name),
                msgspec.Raw(b"0"),
                ended=name in course.ended,
            )
            for name, _ in self.setup.rows
        )
        plan = Plan(1, 0, clock * 1000, "", inputs, (), 0)
        times = tuple(ReadTime(row.input, partition_of(row), row.time) for row in rows)
        value, again = (
            FRONTIERS.after_commit(
                reread(course.value),
                reread(planned.planned),
                committed(plan, TimesReport(times, pending(made.windows, owners))),
            )
            for owners in (course.owners, (1, 1))
        )
        assert value == again == reread(value), "who owns the bins does not matter (R9)"
        check_held(graph, value, made.windows)
        results = dict(course.results)
        for fired in made.fired:
            results[fired.operator] = tuple(sorted((*results.get(fired.operator, ()), *fired.rows)))
        return replace(
            course,
            value=value,
            step_clock=clock,
            given=with_rows(self.setup, course, rows),
            windows=made.windows,
            results=tuple(sorted(results.items())),
            late=course.late | made.late,
        )

    def check_inputs(self, course: Course, now: StepOutlook, planned: PlannedFrontiers) -> None:
        """An input is where its slowest partition is that is not silent, told in another way."""
        reached = max((each.frontier for each in course.value.operators), default=EARLIEST)
        for place, given in enumerate(self.setup.graph.inputs):
            name, idle = given.name, given.idle_us or CLOCKS + 1
            source, before = now.source(name), course.value.input(name, name)
            found = next(each for each in planned.inputs if each.name == name).frontier
            if name in course.ended and not source.reading:
                assert found == END_OF_TIME
                continue
            since = {each.number: each.since_us for each in before.partitions}
            quiet = min(now.clock_us, course.asked[place])
            times = [
                max(rows, default=EARLIEST) - given.lateness_us
                for number, rows in enumerate(course.given[place])
                if number in source.reading or quiet < since.get(number, now.clock_us) + idle
            ]
            if times and None not in since:
                assert max(before.frontier, min(times)) <= found <= max(reached, min(times)), course
            elif not source.reading:
                latest = max((t for rows in course.given[place] for t in rows), default=EARLIEST)
                assert found <= max(before.frontier, latest) + now.clock_us, course


def partition_of(row: Row) -> int:
    return row.number % 100 // 10


def committed(plan: Plan, report: TimesReport) -> CommitContext:
    result = StepResult(1, 0, (), (), (), 0, 0, {}, parts={PART: encoded(report)})
    return CommitContext(plan, result, 0.0)


def encoded(value: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def reread(value: V) -> V:
    """A value as whoever comes after a crash reads it."""
    return msgspec.json.decode(msgspec.json.encode(value), type=type(value))


def with_rows(
    setup: Setup, course: Course, rows: list[Row]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    found = [[list(times) for times in partitions] for partitions in course.given]
    places = {name: place for place, (name, _) in enumerate(setup.rows)}
    for row in rows:
        found[places[row.input]][partition_of(row)].append(row.time)
    return tuple(tuple(tuple(times) for times in partitions) for partitions in found)


def is_behind(after: Frontiers, before: Frontiers) -> bool:
    """Whether any frontier went back."""
    return any(
        after.operator(each.name).frontier < each.frontier for each in before.operators
    ) or any(after.input(each.name, each.source).frontier < each.frontier for each in before.inputs)


def check_moves(graph: TimeGraph, course: Course, moves: dict[str, tuple[int, int]]) -> None:
    """A step's frontiers pass nothing that is pending upstream and stays (R4)."""
    for window in course.windows:
        if window.end > moves[window.operator][1]:
            for operator in graph.operators:
                if window.operator in operator.inputs:
                    assert moves[operator.name][1] < window.end, (course, moves)


def check_held(graph: TimeGraph, value: Frontiers, windows: tuple[Window, ...]) -> None:
    """A commit's frontiers pass nothing that is pending upstream (R4), and all of it is held."""
    for window in windows:
        holds = [each for each in value.operator(window.operator).holds if window.bin in each.bins]
        assert any(each.time < window.end for each in holds), (window, value)
        for operator in graph.operators:
            if window.operator in operator.inputs:
                assert value.operator(operator.name).frontier < window.end, (window, value)


def check_end(setup: Setup, course: Course) -> None:
    """All that was read and is not late is in one result of each operator on its way."""
    if not course.value.operators:
        return  # nothing was ever read
    assert not course.windows, course
    assert all(each.frontier == END_OF_TIME for each in course.value.operators), course
    for operator in setup.graph.operators:
        wanted = [
            place * 100 + partition * 10 + number
            for place, (name, _) in enumerate(setup.rows)
            for partition, times in enumerate(course.given[place])
            for number in range(len(times))
            if name in upstream(setup.graph, operator.name)
        ]
        found = dict(course.results).get(operator.name, ())
        assert list(found) == sorted(set(wanted) - course.late), (operator.name, course)


def upstream(graph: TimeGraph, name: str) -> set[str]:
    inputs = {each.name: each.inputs for each in graph.operators}.get(name, ())
    return set(inputs).union(*(upstream(graph, each) for each in inputs))


@pytest.mark.parametrize("setup", [LINE, HUNG, FORK], ids=["line", "hung", "fork"])
def test_every_course_ends_with_every_row_in_one_result(setup: Setup) -> None:
    model, began = Model(setup), time.process_time()
    model.explore(SECONDS / 2)
    print(f"{model.states} states, {model.steps} steps, {time.process_time() - began:.1f} s")
    assert model.states > 2000
