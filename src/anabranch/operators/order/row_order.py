"""The order of rows: where each came from, and which call made it.

A row's order is a list of whole numbers compared from left to right: three from its reader (source
and file, place in the file, row) and one digit for every call that produced rows on the way. It
does not depend on how the input was split, nor on how many workers there are (R9), so a region that
sorts by it processes a key's rows in one order whatever the shuffle did (R7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

READER_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of each row of a batch: columns of equal length, the first weighs most."""

    columns: tuple[Int64s, ...]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.columns[0])

    def take(self, places: npt.NDArray[np.int64]) -> RowOrder:
        """The order of the rows at these places."""
        return RowOrder(tuple(column[places] for column in self.columns))

    def child(self, parents: Int64s, digits: Int64s) -> RowOrder:
        """The order of rows that calls made: of row ``parents[i]``, its ``digits[i]``-th output."""
        return RowOrder((*(column[parents] for column in self.columns), digits))

    def padded(self, digits: int) -> RowOrder:
        """The same order with so many digits behind the reader's columns; new ones are zero."""
        width = READER_COLUMNS + digits
        return (
            self
            if len(self.columns) >= width
            else RowOrder(tuple(_digit(self, place) for place in range(width)))
        )

    def permutation(self) -> Int64s | None:
        """The places of the rows in order, or None where they stand in order already.

        Rows arrive as a few sequences that are sorted in themselves (one per task that sent some),
        so the usual case is a sort of the sequences' first rows; anything else is sorted in full.

        >>> RowOrder((np.array([2, 2, 1]), np.array([0, 1, 7]))).permutation().tolist()
        [2, 0, 1]
        """
        if len(self) == 0:
            return None
        falls = np.flatnonzero(~self._rising()) + 1
        if len(falls) == 0:
            return None
        return self._joined(falls) if self._apart(falls) else _lexsort(self.columns)

    def smallest(self, order: Int64s, starts: Int64s) -> RowOrder:
        """The least order of each segment of ``order``; segment *i* begins at ``starts[i]``."""
        ranks = np.empty(len(self), dtype=np.int64)
        sorted_places = self.permutation()
        if sorted_places is None:
            ranks = np.arange(len(self), dtype=np.int64)
            sorted_places = ranks
        else:
            ranks[sorted_places] = np.arange(len(self), dtype=np.int64)
        least = np.minimum.reduceat(ranks[order], starts) if len(starts) else ranks[:0]
        return self.take(sorted_places[least])

    def _rising(self) -> npt.NDArray[np.bool_]:
        """For each row but the first: not before the row in front of it."""
        rising = np.ones(len(self) - 1, dtype=np.bool_)
        for column in reversed(self.columns):
            ahead, behind = column[1:], column[:-1]
            rising = (ahead > behind) | ((ahead == behind) & rising)
        return rising

    def _bounds(self, falls: Int64s) -> tuple[Int64s, Int64s]:
        starts = np.concatenate(([0], falls))
        return starts, np.concatenate((falls, [len(self)]))

    def _apart(self, falls: Int64s) -> bool:
        """Whether the sorted sequences do not overlap, so that putting them in a row sorts all."""
        if len(falls) > len(self) // 8:
            return False
        starts, ends = self._bounds(falls)
        by_first = _lexsort(tuple(column[starts] for column in self.columns))
        edges = np.empty(2 * len(starts), dtype=np.int64)
        edges[0::2] = starts[by_first]
        edges[1::2] = ends[by_first] - 1
        return bool(self.take(edges)._rising().all())

    def _joined(self, falls: Int64s) -> Int64s:
        starts, ends = self._bounds(falls)
        by_first = _lexsort(tuple(column[starts] for column in self.columns))
        return np.concatenate([np.arange(starts[i], ends[i]) for i in by_first])


def concatenate(orders: Sequence[RowOrder]) -> RowOrder:
    """Several batches' orders as one; where digits are missing they are zero.

    >>> joined = concatenate([RowOrder((np.array([1]),)), RowOrder((np.array([2]), np.array([5])))])
    >>> [column.tolist() for column in joined.columns]
    [[1, 2], [0, 5]]
    """
    width = max(len(order.columns) for order in orders)
    return RowOrder(tuple(np.concatenate([_digit(o, i) for o in orders]) for i in range(width)))


def _digit(order: RowOrder, place: int) -> Int64s:
    if place < len(order.columns):
        return order.columns[place]
    return np.zeros(len(order), dtype=np.int64)


def _lexsort(columns: tuple[Int64s, ...]) -> Int64s:
    return np.lexsort(columns[::-1]).astype(np.int64, copy=False)
