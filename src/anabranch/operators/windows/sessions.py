"""Session windows over arrays: intervals that overlap become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.operators.order.row_order import Int64s, begins
from anabranch.runs.sort_pairs import sort_pairs

_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class SessionGap:
    """Windows that end when a key has had no row for so long."""

    gap: int


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of many keys, sorted by key and start, and the session that each interval is in."""

    keys: Int64s
    starts: Int64s
    ends: Int64s
    session_of: Int64s

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self.keys)


def merge_sessions(keys: Int64s, starts: Int64s, ends: Int64s) -> Sessions:
    """The sessions that intervals make up; intervals of one key that overlap are one.

    A row at *t* is the interval from *t* up to, not including, *t* plus the gap. So two rows are in
    one session if they are less than the gap apart, or rows between them are. A row at the very end
    of a session begins another: when the frontier is there, the session is closed already.

    >>> found = merge_sessions(np.array([1, 1, 2, 1]), np.array([0, 9, 9, 19]),
    ...                        np.array([10, 19, 19, 29]))
    >>> found.keys.tolist(), found.starts.tolist(), found.ends.tolist()
    ([1, 1, 2], [0, 19, 9], [19, 29, 19])
    >>> found.session_of.tolist()
    [0, 0, 2, 1]
    """
    if not len(keys):
        return Sessions(keys, starts, ends, keys)
    order = sort_pairs(keys, starts)
    by_key, start = keys[order], starts[order]
    reached = _latest_so_far(by_key, ends[order])
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (by_key[1:] != by_key[:-1]) | (start[1:] >= reached[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(order)) - 1
    session_of = np.empty(len(order), dtype=np.int64)
    session_of[order] = np.cumsum(opens) - 1
    return Sessions(by_key[first], start[first], reached[last], session_of)


def _latest_so_far(keys: Int64s, ends: Int64s) -> Int64s:
    """The latest end up to each place, of the same key; the keys are sorted.

    Later keys are made to count for more than any end of an earlier one, so that one running
    maximum serves all. If sums of ends would overflow, their ranks are taken.
    """
    groups = np.cumsum(begins(keys)) - 1
    least, span = int(ends.min()), int(ends.max()) - int(ends.min()) + 1
    if int(groups[-1] + 1) * span < _LARGEST:
        latest = np.maximum.accumulate(groups * span + (ends - least))
        so_far: Int64s = latest - groups * span + least
        return so_far
    values, ranks = np.unique(ends, return_inverse=True)
    latest = np.maximum.accumulate(groups * len(values) + ranks)
    found: Int64s = values[latest % len(values)]
    return found
