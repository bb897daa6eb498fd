"""Searches in rows by key and time, for all rows at the same time."""

from __future__ import annotations

import numpy as np

from anabranch.operators.order.row_order import Int64s


class Timeline:
    """Rows of many keys, sorted by key and time; ``ties`` order those of one time.

    Keys are numbered. ``order`` are the places of the rows as given.

    >>> line = Timeline(np.array([1, 0, 1]), np.array([20, 10, 10]))
    >>> line.order.tolist(), line.ahead(np.array([1, 1]), np.array([10, 20])).tolist()
    ([1, 2, 0], [1, 2])
    """

    def __init__(self, keys: Int64s, times: Int64s, *ties: Int64s) -> None:
        self.order: Int64s = np.lexsort((*reversed(ties), times, keys)).astype(np.int64)
        # A key and the rank of a time make one number. Times themselves are too large for that.
        self._times = np.unique(times)
        self._width = len(self._times) + 1
        ranks = np.searchsorted(self._times, times)
        self._numbers = (keys * self._width + ranks)[self.order]

    def ahead(self, keys: Int64s, times: Int64s) -> Int64s:
        """How many rows are of an earlier key, or of the same key and an earlier time."""
        ranks = np.searchsorted(self._times, times)
        return np.searchsorted(self._numbers, keys * self._width + ranks)

    def up_to(self, keys: Int64s, times: Int64s) -> Int64s:
        """How many rows are of an earlier key, or of the same key and no later time."""
        ranks = np.searchsorted(self._times, times, side="right")
        return np.searchsorted(self._numbers, keys * self._width + ranks)

    def between(self, keys: Int64s, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """The rows of each key from a first to a last time, both included.

        One pair for each: the place of the key asked for, and the place of the row.

        >>> line = Timeline(np.array([1, 0, 1]), np.array([20, 10, 10]))
        >>> asked, found = line.between(np.array([0, 1]), np.array([5, 5]), np.array([9, 20]))
        >>> asked.tolist(), found.tolist()
        ([1, 1], [2, 0])
        """
        asked, found = expand_ranges(self.ahead(keys, first), self.up_to(keys, last))
        return asked, self.order[found]


def expand_ranges(starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """Each number of each range, with the place of its range.

    >>> places, numbers = expand_ranges(np.array([7, 0, 2]), np.array([9, 0, 3]))
    >>> places.tolist(), numbers.tolist()
    ([0, 0, 2], [7, 8, 2])
    """
    counts = np.maximum(stops - starts, 0)
    places = np.repeat(np.arange(len(starts), dtype=np.int64), counts)
    begun = np.cumsum(counts) - counts
    return places, np.arange(len(places)) + np.repeat(starts - begun, counts)
