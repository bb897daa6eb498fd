"""From one commit to the next: the frontiers of a step, what makes one due, and what follows it.

A plan's frontiers depend on the commit before, on the plan's clock and on what its sources have
handed out, and on nothing else. They never go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_fields
from functools import lru_cache

from msgspec.structs import replace

from anabranch.messages import Advance, ReadTime
from anabranch.progress.dataflow.inputs import InputProgress, next_input
from anabranch.progress.dataflow.operators import OperatorScope
from anabranch.progress.dataflow.outlook import SourceOutlook, StepOutlook
from anabranch.progress.dataflow.times import (
    Frontiers,
    InputTimes,
    OperatorTimes,
    PartitionTime,
    PlannedFrontiers,
    ReachedFrontier,
    TimesReport,
    clock_times,
    held_times,
    is_over,
)
from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.plan import Input
from anabranch.records.times import EARLIEST


def next_inputs(graph: TimeGraph, value: Frontiers, outlook: StepOutlook) -> list[InputProgress]:
    """Where all inputs stand in the next step."""
    found = []
    for given in graph.inputs:
        reached = (value.operator(name).frontier for name in behind(graph, given.name))
        before, latest = value.input(given.name, given.source), max(reached, default=EARLIEST)
        found.append(next_input(given, before, outlook, latest))
    return found


def behind(graph: TimeGraph, name: str) -> list[str]:
    """The operators that rows of an input or operator get to, in graph order."""
    found = [name]
    for operator in graph.operators:
        if not set(found).isdisjoint(operator.inputs):
            found.append(operator.name)
    return found[1:]


@lru_cache(maxsize=8)
def plan_frontiers(graph: TimeGraph, value: Frontiers, outlook: StepOutlook) -> PlannedFrontiers:
    """The frontiers of the next step."""
    inputs = next_inputs(graph, value, outlook)
    reached = OperatorScope(graph, inputs).walk(value)
    return PlannedFrontiers(
        tuple(each.times for each in inputs),
        tuple(ReachedFrontier(name, until) for name, until in reached.items()),
        outlook.drains,
    )


def advances(
    graph: TimeGraph, value: Frontiers, planned: PlannedFrontiers
) -> Iterator[tuple[str, Advance]]:
    """The message to each operator, with the region that it goes to."""
    for operator in graph.operators:
        since, until = value.operator(operator.name).frontier, planned.until(operator.name)
        yield operator.region, Advance(operator.name, since, until)


def is_due(graph: TimeGraph, value: Frontiers, outlook: StepOutlook) -> bool:
    """Whether a step would do anything, even without input.

    It would if pending state falls due by a frontier that it moves, or a timer by its clock; if an
    operator must be told that its input has ended; or to drain. A frontier that merely moves is no
    reason: it moves with the next step.
    """
    if outlook.draining and not value.drained:
        return True
    if any(moment <= outlook.clock_us for moment in _wakes(graph, value)):
        return True
    if all(each.idle_us is None for each in graph.inputs):
        # The clock does not matter: the frontiers are those of the last time they were asked for.
        outlook = replace_fields(outlook, clock_us=0)
    planned = plan_frontiers(graph, value, outlook)
    for operator in graph.operators:
        times, until = value.operator(operator.name), planned.until(operator.name)
        # Before the first commit there is nothing to end.
        if is_over(until) and not is_over(times.frontier) and value.inputs:
            return True
        if any(times.frontier < hold.due <= until for hold in times.holds):
            return True
    return False


def due_at(graph: TimeGraph, value: Frontiers, outlook: StepOutlook) -> int | None:
    """The next clock at which ``is_due`` may change by itself; None if it does not.

    That is when a timer by the clock is due, when a partition falls idle, or, if all are idle, when
    the frontier has gone on to where something is due.
    """
    found = list(_wakes(graph, value))
    if any(value.operator(operator.name).holds for operator in graph.operators):
        inputs = next_inputs(graph, value, outlook)
        found += _idle_moments(inputs, outlook)
        if any(each.idle_since is not None for each in inputs):
            found += _due_by_clock(graph, value, outlook)
    return min((moment for moment in found if moment > outlook.clock_us), default=None)


def _wakes(graph: TimeGraph, value: Frontiers) -> Iterator[int]:
    """When the first timer of each operator is due by the clock."""
    for operator in graph.operators:
        yield from (each.at_us for each in value.operator(operator.name).wakes[:1])


def _idle_moments(inputs: Sequence[InputProgress], outlook: StepOutlook) -> Iterator[int]:
    """When partitions fall idle, of sources that are asked and have nothing waiting."""
    for each in inputs:
        source = outlook.source(each.given.source)
        if each.given.idle_us is not None and source.asked_us is not None and not source.reading:
            for part in each.holding:
                yield part.since_us + each.given.idle_us


def _due_by_clock(graph: TimeGraph, value: Frontiers, outlook: StepOutlook) -> Iterator[int]:
    """When the clock has gone on by what a frontier lacks to where something is due.

    Frontiers that wait for something else do not go on with the clock.
    """
    planned = plan_frontiers(graph, value, outlook)
    for operator in graph.operators:
        until = planned.until(operator.name)
        dues = (hold.due for hold in value.operator(operator.name).holds if hold.due > until)
        missing = min(dues, default=until) - until
        if missing and is_due(graph, value, outlook.later(missing)):
            yield outlook.clock_us + missing


def after_step(
    value: Frontiers,
    planned: PlannedFrontiers,
    inputs: Sequence[Input],
    clock_us: int,
    report: TimesReport,
) -> Frontiers:
    """The value to journal with the commit of a step that was planned so."""
    read = {given.source: given for given in inputs}
    return Frontiers(
        tuple(
            _after_reading(each, read.get(each.source), clock_us, report) for each in planned.inputs
        ),
        tuple(
            OperatorTimes(
                each.name,
                each.until,
                held_times(each.name, report.pending),
                clock_times(each.name, report.wakes),
                value.operator(each.name).late
                + sum(late.rows for late in report.late if late.operator == each.name),
            )
            for each in planned.operators
        ),
        value.drained or planned.drained,
    )


def _after_reading(
    times: InputTimes, given: Input | None, clock_us: int, report: TimesReport
) -> InputTimes:
    """Where an input stands after a step that has read this of its source."""
    if given is None:
        return times
    reading = {part.partition for part in given.slices}
    ended = given.ended or (times.ended and not given.slices)
    reported = [each for each in report.times if each.input == times.name]
    partitions = _renumbered(times, reported, clock_us)
    latest = {each.number: each.latest for each in partitions}
    for each in reported:
        known = latest.get(each.partition)
        latest[each.partition] = each.latest if known is None else max(known, each.latest)
    # Whoever reports times by partition tells more than slices without one.
    told = {each.partition for each in reported}
    read = SourceOutlook(times.source, frozenset(told | (reading - {None} if told else reading)))
    return replace(
        times,
        ended=ended,
        partitions=tuple(
            replace(
                part,
                since_us=clock_us if read.reads(part.number) else part.since_us,
                latest=latest[part.number],
            )
            for part in partitions
        ),
    )


def _renumbered(
    times: InputTimes, reported: Sequence[ReadTime], clock_us: int
) -> tuple[PartitionTime, ...]:
    """The partitions as the reports number them; those that are new begin at the frontier."""
    numbers = {each.partition for each in reported}
    if not numbers:
        return times.partitions
    known = tuple(part for part in times.partitions if (part.number is None) is (None in numbers))
    new = numbers - {part.number for part in known}
    if None in numbers:
        new &= {None}
    return (
        *known,
        *(
            PartitionTime(number, clock_us, times.frontier)
            for number in sorted(new, key=lambda number: -1 if number is None else number)
        ),
    )
