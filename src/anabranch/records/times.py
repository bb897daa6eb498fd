"""Event times: 64-bit microseconds since 1970, the times that stand for none, and datetimes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EARLIEST = -(1 << 62)
"""The frontier before any time is known: every row may still come."""

END_OF_TIME = 1 << 62
"""The frontier after the last row: nothing more will come."""

TOO_FAR = END_OF_TIME + 1
"""The time of a row that is further ahead than its stream allows: it is late everywhere."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def to_datetime(time: int) -> datetime:
    """An event time as a datetime in UTC; the first or last one there is for times beyond.

    >>> to_datetime(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    >>> to_datetime(EARLIEST).year, to_datetime(END_OF_TIME).year
    (1, 9999)
    """
    return _EPOCH + timedelta(microseconds=min(max(time, _FIRST), _LAST))


def to_microseconds(at: datetime | int) -> int:
    """A moment as an event time; a datetime without a time zone is in UTC.

    ``ValueError`` for numbers beyond the datetimes, ``TypeError`` for anything else.

    >>> to_microseconds(datetime(1970, 1, 1, 0, 0, 2))
    2000000
    """
    if isinstance(at, datetime):
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if not isinstance(at, int) or isinstance(at, bool):
        raise TypeError(f"a time is a datetime or microseconds as int, not {type(at).__name__}")
    if not _FIRST <= at <= _LAST:
        raise ValueError(f"{at} microseconds since 1970 are not in the years 1 to 9999")
    return at
