"""The rows of a step as an operator over event time takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.operators.order.row_order import Int64s, RowOrder, begins
from anabranch.operators.rows import Rows
from anabranch.records.bins import Mask
from anabranch.records.times import END_OF_TIME, TOO_FAR
from anabranch.runs.keys import one_chunk
from anabranch.runs.rows import Groups, group_keys


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows that are not late, in their order: those that notifications upstream made come first.

    ``places`` number the rows of each key, ``ranks`` all rows; there, those of one order have one
    number.
    """

    rows: Rows
    groups: Groups
    places: Int64s
    ranks: Int64s

    @property
    def times(self) -> Int64s:
        """The event times."""
        assert self.rows.times is not None
        return self.rows.times

    @property
    def fired(self) -> Mask:
        """Which rows notifications upstream have made."""
        return fired_mask(self.rows)


def split_late(
    rows: Rows | None, frontier: int, *, ties: str | None = None
) -> tuple[Arrivals | None, Rows | None]:
    """The rows of a step, and those among them that come too late; None for none.

    A row is late if it is earlier than the frontier, unless a notification upstream made it. For
    ``ties``, see ``split_rows``.
    """
    if rows is None or not len(rows):
        return None, None
    assert rows.times is not None
    late = (rows.times < frontier) & ~fired_mask(rows)
    return split_rows(rows, late | (rows.times >= TOO_FAR), ties=ties)


def split_rows(
    rows: Rows, late: Mask, *, ties: str | None = None
) -> tuple[Arrivals | None, Rows | None]:
    """The rows of a step, and those of them that are late; None for none.

    Rows of one order, which are copies of one row, are ordered by the column ``ties``.
    """
    order = rows.order
    if order is not None and ties is not None:
        copies = one_chunk(rows.values.column(ties)).to_numpy().astype(np.int64)
        order = RowOrder((*order.columns, copies))
    places = None if order is None else order.permutation()
    if places is None:
        places = np.arange(len(rows), dtype=np.int64)
    kept = places[~late[places]]
    behind = rows.take(np.flatnonzero(late)) if late.any() else None
    return arrivals_of(rows.take(kept)) if len(kept) else None, behind


def arrivals_of(rows: Rows) -> Arrivals:
    """Rows that are in their order, with their keys."""
    assert rows.hashes is not None
    assert rows.keys is not None
    groups = group_keys(rows.hashes, rows.keys)
    begun = np.repeat(groups.starts, np.diff(np.append(groups.starts, len(rows))))
    places = np.empty(len(rows), dtype=np.int64)
    places[groups.order] = np.arange(len(rows)) - begun
    ranks = np.arange(len(rows), dtype=np.int64)
    if rows.order is not None:
        ranks = np.cumsum(begins(*rows.order.columns), dtype=np.int64) - 1
    return Arrivals(rows, groups, places, ranks)


def fired_mask(rows: Rows) -> Mask:
    """Which rows notifications upstream have made, as a mask in any case."""
    return np.zeros(len(rows), dtype=np.bool_) if rows.fired is None else rows.fired


def due_after(times: Int64s, delay: int) -> Int64s:
    """When something falls due that the last row at these times plus ``delay`` may still change.

    Everything is due at the end of time.
    """
    return np.minimum(times + (delay + 1), END_OF_TIME)
