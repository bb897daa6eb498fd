"""The order of rows, from where they were read and which calls produced them.

A row's order is a list of integers compared from left to right: three from its reader (source and
file, place in the file, row) and one digit for every call that produced rows on the way. It does
not depend on how the input was split or on the number of workers (R9). So a region that sorts by it
processes a key's rows in one order, whatever the shuffle did (R7).
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
    """The order of each row of a batch: columns of equal length, the most significant first."""

    columns: tuple[Int64s, ...]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    def take(self, places: npt.NDArray[np.int64]) -> RowOrder:
        """The order of the rows at these places."""
        return RowOrder(tuple(column[places] for column in self.columns))

    def child(self, parents: Int64s, digits: Int64s) -> RowOrder:
        """The order of output rows: row *i* is number ``digits[i]`` of row ``parents[i]``."""
        return RowOrder((*(column[parents] for column in self.columns), digits))

    def padded(self, digits: int) -> RowOrder:
        """The order padded with zeros to ``digits`` digits after the reader's columns."""
        width = READER_COLUMNS + digits
        return (
            self
            if len(self.columns) >= width
            else RowOrder(tuple(_digit(self, place) for place in range(width)))
        )

    def permutation(self) -> Int64s | None:
        """The places of the rows in order; None if they are in order already.

        Rows usually arrive as a few sorted sequences, one per sending task, so it is enough to sort
        the first rows of the sequences. If the sequences overlap, all rows are sorted.

        >>> RowOrder((np.array([2, 2, 1]), np.array([0, 1, 7]))).permutation().tolist()
        [2, 0, 1]
        """
        if len(self) == 0:
            return None
        falls = np.flatnonzero(~self._rising()) + 1
        if len(falls) == 0:
            return None
        return self._sort_sequences(falls) if self._apart(falls) else _lexsort(self.columns)

    def smallest(self, order: Int64s, starts: Int64s) -> RowOrder:
        """The smallest order in each segment of ``order``; segment *i* begins at ``starts[i]``."""
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
        """Whether each row but the first is not less than the previous row."""
        rising = np.ones(len(self) - 1, dtype=np.bool_)
        for column in reversed(self.columns):
            ahead, behind = column[1:], column[:-1]
            rising = (ahead > behind) | ((ahead == behind) & rising)
        return rising

    def _bounds(self, falls: Int64s) -> tuple[Int64s, Int64s]:
        starts = np.concatenate(([0], falls))
        return starts, np.concatenate((falls, [len(self)]))

    def _apart(self, falls: Int64s) -> bool:
        """Whether the sorted sequences do not overlap, so that concatenating them sorts all."""
        if len(falls) > len(self) // 8:
            return False
        starts, ends = self._bounds(falls)
        by_first = _lexsort(tuple(column[starts] for column in self.columns))
        edges = np.empty(2 * len(starts), dtype=np.int64)
        edges[0::2] = starts[by_first]
        edges[1::2] = ends[by_first] - 1
        return bool(self.take(edges)._rising().all())

    def _sort_sequences(self, falls: Int64s) -> Int64s:
        starts, ends = self._bounds(falls)
        by_first = _lexsort(tuple(column[starts] for column in self.columns))
        return np.concatenate([np.arange(starts[i], ends[i]) for i in by_first])


def concatenate(orders: Sequence[RowOrder]) -> RowOrder:
    """Concatenate the orders of several batches; missing digits are zero.

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
