"""The order of rows that no input row made: those of notifications, and of the end of the input."""

from __future__ import annotations

import numpy as np

from anabranch.operators.order.row_order import Int64s, RowOrder, begins
from anabranch.records.bins import Hashes

FIRED = -1
"""The first order column of rows that notifications made: before all rows of all sources."""

AFTER_ALL = 1 << 62
"""The first order column of rows that come after all rows of all sources."""

OPERATOR_SHIFT = 32
"""The digit of such rows holds the operator's number above these bits: streams may be united."""


def fired_order(times: Int64s, hashes: Hashes, operator: int) -> RowOrder:
    """The order of rows that notifications made: time, hash of the key, operator, then as given.

    It depends on neither workers nor steps: all keys of a hash are on one worker.

    >>> order = fired_order(np.array([7, 5, 7]), np.array([1, 1, 1], dtype=np.uint64), 0)
    >>> [column.tolist() for column in order.columns]
    [[-1, -1, -1], [7, 5, 7], [1, 1, 1], [0, 0, 1]]
    """
    return _numbered(FIRED, times, hashes.view(np.int64), operator)


def ending_order(hashes: Hashes, places: Int64s, operator: int) -> RowOrder:
    """The order of rows that the end of the input made: hash of the key, place of the key."""
    return _numbered(AFTER_ALL, hashes.view(np.int64), places, operator)


def _numbered(first: int, second: Int64s, third: Int64s, operator: int) -> RowOrder:
    """The order by these columns; a digit numbers the rows of an operator that they leave equal."""
    digits = np.empty(len(second), dtype=np.int64)
    order = np.lexsort((third, second))
    starts = np.flatnonzero(begins(second[order], third[order])) if len(order) else order
    lengths = np.diff(np.append(starts, len(order)))
    digits[order] = np.arange(len(order)) - np.repeat(starts, lengths)
    digits += operator << OPERATOR_SHIFT
    return RowOrder((np.full(len(second), first, dtype=np.int64), second, third, digits))
