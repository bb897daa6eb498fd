"""The frontier of an input: the least time of its partitions that are not idle.

A partition is idle if it was silent for as long as the dataflow says, was asked since, and has
nothing waiting. It holds nothing back then. If all are idle, the frontier goes on by as much as the
clock has gone on since the last of them fell silent: not to the clock itself, or rows would be late
where history is replayed.

Frontiers downstream do not wait for an idle input. If it has rows again, it begins where they are:
a row before that would be late further on, so it is late at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from anabranch.progress.dataflow.outlook import SourceOutlook, StepOutlook
from anabranch.progress.dataflow.times import InputTimes, PartitionTime
from anabranch.progress.inputs import InputHandle
from anabranch.progress.scope import Scope
from anabranch.progress.topology import InputPort
from anabranch.protocol.time_graph import TimedInput
from anabranch.records.times import EARLIEST, END_OF_TIME


@dataclass(frozen=True, slots=True)
class InputProgress:
    """An input in the next step: where it stands, and which partitions hold it there.

    ``idle_since`` is when the last of its partitions fell idle, None while one is not. A frontier
    downstream does not wait for an idle input.
    """

    given: TimedInput
    times: InputTimes
    holding: tuple[PartitionTime, ...] = ()
    idle_since: int | None = None

    @property
    def frontier(self) -> int:
        """The frontier in the step."""
        return self.times.frontier


def next_input(
    given: TimedInput, before: InputTimes, outlook: StepOutlook, downstream: int = EARLIEST
) -> InputProgress:
    """Where an input stands in the next step; ``downstream`` is the latest frontier behind it."""
    source = outlook.source(given.source)
    ended = (before.ended or source.ended) and not source.reading
    if ended or outlook.drains or before.frontier == END_OF_TIME:
        return InputProgress(given, replace(before, frontier=END_OF_TIME))
    if not given.timed:
        return InputProgress(given, before)
    partitions = with_new_partitions(before, source, outlook.clock_us)
    times = replace(before, partitions=partitions)
    live = [part for part in partitions if idle_at(given, part, source, outlook) is None]
    if live:
        frontier = max(before.frontier, downstream, least_time(given, live))
        return InputProgress(given, replace(times, frontier=frontier), tuple(live))
    return _going_on(given, times, source, outlook)


def _going_on(
    given: TimedInput, times: InputTimes, source: SourceOutlook, outlook: StepOutlook
) -> InputProgress:
    """An input all of whose partitions are idle: its frontier goes on with the clock."""
    moments = {part: idle_at(given, part, source, outlook) or 0 for part in times.partitions}
    since = max(moments.values())
    # The last to fall silent held the frontier until then.
    last = tuple(part for part, moment in moments.items() if moment == since)
    frontier, clock = max(times.frontier, least_time(given, last)), quiet_until(source, outlook)
    if frontier > EARLIEST:
        frontier += max(0, clock - max(since, times.went_on_us))
    times = replace(times, frontier=frontier, went_on_us=max(clock, times.went_on_us))
    return InputProgress(given, times, last, since)


def with_new_partitions(
    before: InputTimes, source: SourceOutlook, clock_us: int
) -> tuple[PartitionTime, ...]:
    """The partitions with those that have come: they start at the frontier of their input.

    Whether times are known by partition is seen from the first report; until then there is one.
    """
    known = before.partitions
    if not known:
        return (PartitionTime(None, clock_us, before.frontier),)
    if known[0].number is None or source.partitions is None:
        return known
    numbers = {part.number for part in known}
    new = [number for number in range(source.partitions) if number not in numbers]
    return (*known, *(PartitionTime(number, clock_us, before.frontier) for number in new))


def idle_at(
    given: TimedInput, part: PartitionTime, source: SourceOutlook, outlook: StepOutlook
) -> int | None:
    """When a partition fell idle, by the clock; None if it is not."""
    if given.idle_us is None or source.reads(part.number):
        return None
    moment = part.since_us + given.idle_us
    return moment if moment <= quiet_until(source, outlook) else None


def quiet_until(source: SourceOutlook, outlook: StepOutlook) -> int:
    """Up to which clock a source is known to have nothing more than it has handed out."""
    return EARLIEST if source.asked_us is None else min(outlook.clock_us, source.asked_us)


def least_time(given: TimedInput, partitions: Sequence[PartitionTime]) -> int:
    """The frontier of an input that these partitions hold back."""
    scope, port = partition_scope(given, partitions)
    (least,) = scope.frontier(port)
    return least


def partition_scope(
    given: TimedInput, partitions: Sequence[PartitionTime]
) -> tuple[Scope[int], InputPort]:
    """A scope with one input handle for each partition, and the port that they all feed."""
    scope: Scope[int] = Scope(least=EARLIEST)
    merged = InputPort(given.name)
    scope.topology.add_operator(given.name, inputs=1, outputs=0)
    for part in partitions:
        handle: InputHandle[int] = InputHandle(part.frontier(given.lateness_us))
        scope.topology.add_edge(handle.input_from(scope, partition_name(part.number)), merged)
    scope.propagate()
    return scope, merged


def partition_name(number: int | None) -> str:
    """A partition in a sentence."""
    return "all partitions" if number is None else f"partition {number}"
