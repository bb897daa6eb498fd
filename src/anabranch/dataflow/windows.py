"""Windows over event time, as users say them: tumbling, sliding, session."""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from anabranch.dataflow.durations import Duration, duration_us

WINDOW_START = "window_start"
WINDOW_END = "window_end"

MOST_PANES = 1000
"""The most pieces of a sliding window: each is kept and merged by itself."""


class TumblingWindow(msgspec.Struct, frozen=True):
    """Windows of one length, one after the other, aligned to 1970 and shifted by the offset."""

    length_us: int
    offset_us: int = 0


class SlidingWindow(msgspec.Struct, frozen=True):
    """Windows of one length that begin every so often, and overlap."""

    length_us: int
    every_us: int
    offset_us: int = 0


class SessionWindow(msgspec.Struct, frozen=True):
    """Windows that end when a key has had no row for so long."""

    gap_us: int


Window: TypeAlias = TumblingWindow | SlidingWindow | SessionWindow


def tumbling(length: Duration, *, offset: Duration = "0 seconds") -> TumblingWindow:
    """Windows of one length, one after the other: ``tumbling("1 day", offset="6 hours")``.

    They are aligned to midnight of 1 January 1970, UTC, shifted by ``offset``.

    >>> tumbling("10 seconds")
    TumblingWindow(length_us=10000000, offset_us=0)
    """
    size = duration_us("the length of a window", length)
    return TumblingWindow(size, duration_us("an offset", offset, least=None) % size)


def sliding(length: Duration, *, every: Duration, offset: Duration = "0 seconds") -> SlidingWindow:
    """Windows of one length that begin every so often: ``sliding("10 minutes", every="1 minute")``.

    A row is in each window that covers its time. ``every`` is at most ``length``.

    >>> sliding("10 seconds", every="2 seconds")
    SlidingWindow(length_us=10000000, every_us=2000000, offset_us=0)
    """
    size = duration_us("the length of a window", length)
    step = duration_us("every", every)
    if step > size:
        raise ValueError(f"every is {every!r}, more than the length {length!r}: rows would be lost")
    if size // math.gcd(size, step) > MOST_PANES:
        raise ValueError(
            f"windows of {length!r} every {every!r} have {size // math.gcd(size, step)} pieces; "
            f"at most {MOST_PANES} are possible: let them begin at a larger share of their length"
        )
    return SlidingWindow(size, step, duration_us("an offset", offset, least=None) % step)


def session(gap: Duration) -> SessionWindow:
    """Windows that end when a key has had no row for so long: ``session("30 minutes")``.

    Rows of a key that are less than the gap apart are in one window. It ends the gap after its last
    row.

    >>> session("10 seconds")
    SessionWindow(gap_us=10000000)
    """
    return SessionWindow(duration_us("the gap of a session", gap))
