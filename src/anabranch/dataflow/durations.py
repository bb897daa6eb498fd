"""Durations as users write them: ``"90 seconds"``, ``"1 hour 30 minutes"`` or a ``timedelta``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, TypeAlias

Duration: TypeAlias = "timedelta | str"
TimeToLive: TypeAlias = "timedelta | str | None"

Clock: TypeAlias = Literal["step", "event"]
"""What time-to-live and timers go by: the clock of the steps, or the frontier of event time."""

_UNITS = {
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
    "week": 7 * 86400 * 10**9,
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+?)s?\s*(?:,|$|(?=\d))", re.IGNORECASE)
_SIGN = re.compile(r"\s*([+-])\s*(?=\d)")


def ttl_ns(ttl: TimeToLive) -> int | None:
    """A time-to-live in nanoseconds; ``ValueError`` if it cannot be read or is not positive.

    >>> ttl_ns("1 hour 30 minutes") == 90 * 60 * 10**9
    True
    """
    if ttl is None:
        return None
    total = _nanoseconds("a time-to-live", ttl)
    if total <= 0:
        raise ValueError(f"a time-to-live must be positive, not {ttl!r}")
    return total


def clock_error(clock: object, lives_ns: int | None) -> str | None:
    """What is wrong with the clock of a time-to-live; None if nothing is.

    >>> clock_error("event", None)
    'clock="event" is for a time-to-live, and ttl is not given'
    """
    if clock not in ("step", "event"):
        return f'clock is "step" or "event", not {clock!r}'
    if clock == "event" and lives_ns is None:
        return 'clock="event" is for a time-to-live, and ttl is not given'
    return None


def duration_us(what: str, duration: Duration, *, least: int | None = 1) -> int:
    """A duration in microseconds; ``ValueError`` if it cannot be read or is below ``least``.

    With ``least`` None it may be negative: ``"-1 minute"``.

    >>> duration_us("lateness", "4 seconds", least=0)
    4000000
    >>> duration_us("a bound", "-1 minute", least=None)
    -60000000
    """
    total = _nanoseconds(what, duration)
    if least is not None and total < least * 1000:
        wanted = "positive" if least > 0 else "zero or more"
        raise ValueError(f"{what} must be {wanted}, not {duration!r}")
    return total // 1000


def _nanoseconds(what: str, duration: object) -> int:
    if isinstance(duration, timedelta):
        return int(duration / timedelta(microseconds=1)) * 1000
    if isinstance(duration, str):
        sign = _SIGN.match(duration)
        if sign is None:
            return _parse_duration(duration, 0)
        return _parse_duration(duration, sign.end()) * (-1 if sign[1] == "-" else 1)
    raise TypeError(f"{what} is text or a timedelta, not {type(duration).__name__}")


def _parse_duration(text: str, place: int) -> int:
    total, first = 0, True
    while first or place < len(text):
        found = _PART.match(text, place)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise ValueError(
                f"{text!r} is not a time: write e.g. '90 seconds' or '1 hour 30 minutes'; "
                f"the units are {', '.join(_UNITS)}"
            )
        total += int(found[1]) * unit
        place, first = found.end(), False
    return total
