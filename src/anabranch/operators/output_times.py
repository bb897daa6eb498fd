"""The event times of output rows: those of what they were made of, or those of a column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from anabranch.errors import EarlierTime, OutputMismatch
from anabranch.operators.order.row_order import Int64s
from anabranch.records.times import TOO_FAR, to_datetime

_NONE_YET = np.iinfo(np.int64).min


def latest_times(times: Int64s, starts: Int64s) -> Int64s:
    """The latest time of each segment of rows; segment *i* begins at ``starts[i]``.

    What is made of several rows was not known before the last of them. A row that is too far ahead
    counts only if all of them are.

    >>> latest_times(np.array([3, 5, TOO_FAR, TOO_FAR]), np.array([0, 3])).tolist()[0]
    5
    """
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    known = np.where(times == TOO_FAR, _NONE_YET, times)
    latest = np.maximum.reduceat(known, starts)
    return np.where(latest == _NONE_YET, TOO_FAR, latest)


def earliest_times(times: Int64s, starts: Int64s) -> Int64s:
    """The earliest time of each segment of rows; segment *i* begins at ``starts[i]``."""
    return np.minimum.reduceat(times, starts) if len(starts) else np.empty(0, dtype=np.int64)


def column_times(
    column: pa.Array | pa.ChunkedArray, earliest: Int64s, name: str, where: Callable[[int], str]
) -> Int64s:
    """The times that a column of output rows gives them.

    ``earliest`` are the times that they may have, ``where`` describes the place of a row. Raises
    ``OutputMismatch`` for NULL, and ``EarlierTime`` for a row earlier than what it was made of: the
    frontiers downstream may have passed its time.
    """
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise OutputMismatch(
            f"An output row has NULL in {name!r}, which is its event time",
            where=where(place),
            do=f"Return a time in {name!r} with every row.",
        )
    times: Int64s = column.cast(pa.int64()).to_numpy()
    early = np.flatnonzero(times < earliest)
    if len(early):
        place = int(early[0])
        given, held = to_datetime(int(times[place])), to_datetime(int(earliest[place]))
        raise EarlierTime(
            f"An output row has the time {given.isoformat()} in {name!r}, earlier than "
            f"{held.isoformat()}, the time of what it was made of",
            where=where(place),
            do="Return a time that is not earlier: results at earlier times may be out already.",
        )
    return times
