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

from anabranch.records.bins import Mask

Int64s = npt.NDArray[np.int64]

READER_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of each row of a batch: columns of equal length, the most significant first."""

    columns: tuple[Int64s, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, places: Int64s) -> RowOrder:
        """The order of the rows at these places."""
        return RowOrder(tuple(column[places] for column in self.columns))

    def child(self, parents: Int64s, digits: Int64s) -> RowOrder:
        """The order of output rows: row *i* is number ``digits[i]`` of row ``parents[i]``."""
        return RowOrder((*(column[parents] for column in self.columns), digits))

    def padded(self, digits: int) -> RowOrder:
        """The order padded with zeros to ``digits`` digits after the reader's columns."""
        width = max(READER_COLUMNS + digits, len(self.columns))
        return RowOrder(tuple(_digit(self, place) for place in range(width)))

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
        places = self._sort_sequences(falls)
        return _lexsort(self.columns) if places is None else places

    def smallest(self, order: Int64s, starts: Int64s) -> RowOrder:
        """The smallest order in each segment of ``order``; segment *i* begins at ``starts[i]``."""
        places = self.permutation()
        ranks = np.arange(len(self), dtype=np.int64)
        if places is None:
            places = ranks
        else:
            ranks[places] = ranks.copy()
        least = np.minimum.reduceat(ranks[order], starts) if len(starts) else ranks[:0]
        return self.take(places[least])

    def _rising(self) -> Mask:
        """Whether each row but the first is not less than the previous row."""
        rising = np.ones(len(self) - 1, dtype=np.bool_)
        for column in reversed(self.columns):
            ahead, behind = column[1:], column[:-1]
            rising = (ahead > behind) | ((ahead == behind) & rising)
        return rising

    def _sort_sequences(self, falls: Int64s) -> Int64s | None:
        """The places of the rows, sequence after sequence; None if these are many or overlap."""
        if len(falls) > len(self) // 8:
            return None
        starts, ends = np.concatenate(([0], falls)), np.concatenate((falls, [len(self)]))
        by_first = _lexsort(tuple(column[starts] for column in self.columns))
        edges = np.empty(2 * len(starts), dtype=np.int64)
        edges[0::2] = starts[by_first]
        edges[1::2] = ends[by_first] - 1
        if not self.take(edges)._rising().all():
            return None
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


def digits_of(parents: Int64s) -> Int64s:
    """The number of each row among the rows of its parent, in their order.

    >>> digits_of(np.array([4, 2, 4, 4, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(parents, kind="stable")
    first = np.flatnonzero(begins(parents[order]))
    digits = np.empty(len(order), dtype=np.int64)
    digits[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return digits


def begins(*columns: Int64s) -> Mask:
    """Which rows differ from the row before in any of these columns.

    >>> begins(np.array([1, 1, 2]), np.array([5, 6, 6])).tolist()
    [True, True, True]
    """
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new
