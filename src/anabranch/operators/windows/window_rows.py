"""The output rows of windows: of those that close, and of those that a step changes."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa

from anabranch.operators.order.row_order import Int64s, RowOrder
from anabranch.operators.rows import Rows
from anabranch.operators.windows.contents import Contents, KeyedWindows
from anabranch.records.bins import Hashes

NOTIFICATION = -1
"""The first column of the order of rows that the frontier made."""

_NUMBER_BITS = 31


def closed_rows(operator: str, contents: Contents, windows: KeyedWindows) -> Rows:
    """The rows of windows that close. Their time is the last microsecond of the window."""
    values, window_of = contents.output(windows)
    times, hashes, keys = windows.ends - 1, windows.hashes, windows.keys
    if window_of is not None:
        times, hashes, keys = times[window_of], hashes[window_of], keys.take(pa.array(window_of))
    return Rows(
        values,
        hashes,
        pa.Table.from_batches([keys]),
        _fired_order(operator, times, hashes),
        times,
        np.ones(len(times), dtype=np.bool_),
    )


def changed_rows(
    contents: Contents, windows: KeyedWindows, order: RowOrder | None, *, fired: bool
) -> Rows:
    """One row with the new value of each window that rows changed.

    ``order`` is where each comes. They count as fired if the rows that changed them do.
    """
    values, _ = contents.output(windows)
    return Rows(
        values,
        windows.hashes,
        pa.Table.from_batches([windows.keys]),
        order,
        windows.ends - 1,
        np.full(len(windows), fired) if fired else None,
    )


def _fired_order(operator: str, times: Int64s, hashes: Hashes) -> RowOrder:
    """By time, then by the hash of the key, before all rows that were read.

    Rows of one hash are adjacent, and numbered: their order does not depend on the placement (R9).
    The operator's name tells them from the rows of other operators.
    """
    new = np.ones(len(hashes), dtype=np.bool_)
    new[1:] = hashes[1:] != hashes[:-1]
    places = np.arange(len(hashes), dtype=np.int64)
    numbers = places - places[new][np.cumsum(new) - 1]
    first = np.full(len(times), NOTIFICATION, dtype=np.int64)
    last = (zlib.crc32(operator.encode()) << _NUMBER_BITS) + numbers
    return RowOrder((first, times, hashes.view(np.int64), last))
