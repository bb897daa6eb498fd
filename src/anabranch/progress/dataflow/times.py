"""What a commit says about event time: where inputs and operators stand, and what is pending.

All times are microseconds: event times since 1970, clocks likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from anabranch.messages import LateRows, PendingTimes, ReadTime
from anabranch.records.bin_set import BinSet
from anabranch.records.times import EARLIEST, END_OF_TIME

PART = "frontiers"
"""The name of the committed part."""


class PartitionTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a partition of an input has come. ``number`` is None for an input as a whole.

    ``since_us`` is the clock of the last step that read rows of it, or of the one it was first seen
    in. It holds its input back at ``start`` until it has a ``latest`` time.
    """

    number: int | None
    since_us: int
    start: int = EARLIEST
    latest: int | None = None

    def frontier(self, lateness_us: int) -> int:
        """The time that no further row of it is expected to be before."""
        return self.start if self.latest is None else max(self.start, self.latest - lateness_us)


class InputTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an input of the time graph stands.

    ``frontier`` never goes back. ``ended``: its source has no more rows, and all are committed.
    ``went_on_us`` is the clock up to which the frontier has gone on while all partitions were idle.
    """

    name: str
    source: str
    frontier: int = EARLIEST
    partitions: tuple[PartitionTime, ...] = ()
    ended: bool = False
    went_on_us: int = 0


class HeldTime(msgspec.Struct, frozen=True):
    """The earliest time that some bins have something pending for."""

    time: int
    bins: BinSet

    @property
    def due(self) -> int:
        """The first frontier at which it falls due."""
        return self.time + 1


class ClockTime(msgspec.Struct, frozen=True):
    """When the earliest timer by the step's clock is due that some bins have."""

    at_us: int
    bins: BinSet


class OperatorTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an operator stands: its frontier, what it has pending, and how many rows came late."""

    name: str
    frontier: int = EARLIEST
    holds: tuple[HeldTime, ...] = ()
    wakes: tuple[ClockTime, ...] = ()
    late: int = 0


class Frontiers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of the committed part.

    ``drained``: all inputs were closed for good, and nothing is pending any more.
    """

    inputs: tuple[InputTimes, ...] = ()
    operators: tuple[OperatorTimes, ...] = ()
    drained: bool = False

    def input(self, name: str, source: str) -> InputTimes:
        """Where an input stands; at the beginning, if nothing is known of it."""
        found = (each for each in self.inputs if each.name == name)
        return next(found, None) or InputTimes(name, source)

    def operator(self, name: str) -> OperatorTimes:
        """Where an operator stands; at the beginning, if nothing is known of it."""
        found = (each for each in self.operators if each.name == name)
        return next(found, None) or OperatorTimes(name)


class ReachedFrontier(msgspec.Struct, frozen=True):
    """The frontier of an operator in a step."""

    name: str
    until: int


class PlannedFrontiers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a plan says about event time: where inputs stand, and each operator's frontier.

    ``drained`` closes all inputs for good.
    """

    inputs: tuple[InputTimes, ...] = ()
    operators: tuple[ReachedFrontier, ...] = ()
    drained: bool = False

    def until(self, operator: str) -> int:
        """The frontier of an operator."""
        return next(each.until for each in self.operators if each.name == operator)


class TimesReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the tasks of a step report about event time."""

    times: tuple[ReadTime, ...] = ()
    pending: tuple[PendingTimes, ...] = ()
    wakes: tuple[PendingTimes, ...] = ()
    late: tuple[LateRows, ...] = ()


def held_times(operator: str, pending: Iterable[PendingTimes]) -> tuple[HeldTime, ...]:
    """What an operator holds by the reports of its tasks, earliest first; equal ones together."""
    return tuple(HeldTime(time, bins) for time, bins in _by_time(operator, pending))


def clock_times(operator: str, wakes: Iterable[PendingTimes]) -> tuple[ClockTime, ...]:
    """When timers of an operator are due by the clock, earliest first; equal ones together."""
    return tuple(ClockTime(time, bins) for time, bins in _by_time(operator, wakes))


def _by_time(operator: str, pending: Iterable[PendingTimes]) -> Iterator[tuple[int, BinSet]]:
    bins: dict[int, list[int]] = {}
    for each in pending:
        if each.operator == operator:
            for number, time in zip(each.bins, each.times, strict=True):
                bins.setdefault(time, []).append(number)
    for time in sorted(bins):
        yield time, BinSet.of(bins[time])


def is_over(frontier: int) -> bool:
    """Whether a frontier is at the end of time."""
    return frontier >= END_OF_TIME
