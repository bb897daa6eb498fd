"""The order of rows that the frontier made, out of timers and at the end of the input."""

from __future__ import annotations

import zlib

import numpy as np

from anabranch.operators.order.row_order import Int64s, RowOrder, begins
from anabranch.records.bins import Hashes

FIRED = -1
"""The first order column of rows that the frontier made: before all rows of all sources."""

_NUMBER_BITS = 31


def fired_order(operator: str, times: Int64s, hashes: Hashes) -> RowOrder:
    """By time, then by the hash of the key, then as they are, before all rows that were read.

    Rows of the same time and hash are numbered. All keys of a hash are on one worker, so the order
    does not depend on the placement (R9). The operator's name tells them from the rows of others.

    >>> order = fired_order("unpaid", np.array([7, 5, 7]), np.array([1, 1, 1], dtype=np.uint64))
    >>> [column.tolist() for column in order.columns[:3]]
    [[-1, -1, -1], [7, 5, 7], [1, 1, 1]]
    """
    keys = hashes.view(np.int64)
    numbers = np.empty(len(times), dtype=np.int64)
    order = np.lexsort((keys, times))
    if len(order):
        starts = np.flatnonzero(begins(times[order], keys[order]))
        lengths = np.diff(np.append(starts, len(order)))
        numbers[order] = np.arange(len(order)) - np.repeat(starts, lengths)
    first = np.full(len(times), FIRED, dtype=np.int64)
    last = (zlib.crc32(operator.encode()) << _NUMBER_BITS) + numbers
    return RowOrder((first, times, keys, last))
