"""The order of rows that a frontier makes."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from anabranch.operators.order.row_order import Int64s, RowOrder, digits_of
from anabranch.operators.order.sort_columns import ranks
from anabranch.operators.rows import Rows
from anabranch.records.bins import Hashes

FIRED = -1
"""The first column of the order of fired rows: they come before all rows that were read."""

_ROW_BITS = 31


def fired_order(operator: str, times: Int64s, hashes: Hashes) -> RowOrder:
    """The order of rows that an operator makes when its frontier moves: by time, then by key.

    Rows of one time and hash are numbered as they are given, so the caller gives them in an order
    that does not depend on the placement (R9). The operator's name is in the number, so that rows
    of different operators have different orders.

    >>> times, hashes = np.array([7, 7, 5]), np.array([1, 1, 9], dtype=np.uint64)
    >>> columns = fired_order("sums", times, hashes).columns
    >>> [column.tolist() for column in columns[:3]], (columns[3] - columns[3][0]).tolist()
    ([[-1, -1, -1], [7, 7, 5], [1, 1, 9]], [0, 1, 0])
    """
    words = hashes.view(np.int64)
    first = np.full(len(times), FIRED, dtype=np.int64)
    number = zlib.crc32(operator.encode()) << _ROW_BITS
    return RowOrder((first, times, words, number + digits_of(ranks([times, words], len(times)))))


def as_fired(operator: str, rows: Rows) -> Rows:
    """Output that an operator's frontier makes, marked as such and in its order."""
    assert rows.times is not None
    assert rows.hashes is not None
    order = fired_order(operator, rows.times, rows.hashes)
    return replace(rows, order=order, fired=np.ones(len(rows), dtype=np.bool_))
