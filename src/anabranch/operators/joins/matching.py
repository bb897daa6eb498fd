"""Matches between the rows of both sides, and the rows that a join makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import JoinSide
from anabranch.operators.arrivals import Arrivals
from anabranch.operators.joins.columns import NO_ROW, JoinColumns, PlacedRows, no_rows
from anabranch.operators.joins.side_rows import SideRows
from anabranch.operators.order.row_order import Int64s, digits_of
from anabranch.operators.rows import Rows
from anabranch.operators.timeline import Timeline
from anabranch.records.bins import Mask


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The rows of both sides that meet in a step, and the places of those that match."""

    left: SideRows
    right: SideRows
    lefts: Int64s
    rights: Int64s

    def of(self, side: JoinSide) -> SideRows:
        """The rows of a side."""
        return self.right if side else self.left

    def matched(self, side: JoinSide) -> Mask:
        """Which rows of a side have a match in this step."""
        found = np.zeros(len(self.of(side)), dtype=np.bool_)
        found[self.rights if side else self.lefts] = True
        return found


def match_within(left: SideRows, right: SideRows, lower: int, upper: int) -> Matches:
    """Match right rows that are from ``lower`` to ``upper`` after a left row of their key.

    At least one row of each match has come in this step: the others have met before.
    """
    new_left, new_right = np.flatnonzero(~left.held), np.flatnonzero(~right.held)
    old_left = np.flatnonzero(left.held)
    times = left.times[new_left]
    line = Timeline(right.keys, right.times)
    asked, found = line.between(left.keys[new_left], times + lower, times + upper)
    times = right.times[new_right]
    line = Timeline(left.keys[old_left], left.times[old_left])
    asked_too, found_too = line.between(right.keys[new_right], times - upper, times - lower)
    return Matches(
        left,
        right,
        np.concatenate([new_left[asked], old_left[found_too]]),
        np.concatenate([found, new_right[asked_too]]),
    )


def joined_rows(
    columns: JoinColumns, arrived: Arrivals, matches: Matches, lone: Mapping[JoinSide, Int64s]
) -> Rows:
    """A row for each match, then one for each row that has come and stays alone.

    A match is made of the row that came last, and has the later of both times. The matches of one
    row are ordered by the time, step and place of its partners.
    """
    left, right = matches.left, matches.right
    order = _match_order(matches)
    lefts, rights = [matches.lefts[order]], [matches.rights[order]]
    for side, places in lone.items():
        none = np.full(len(places), NO_ROW, dtype=np.int64)
        lefts.append(none if side else places)
        rights.append(places if side else none)
    on_left, on_right = np.concatenate(lefts), np.concatenate(rights)
    parents = np.maximum(_of(left.rows, on_left), _of(right.rows, on_right))
    assert arrived.rows.keys is not None
    values = columns.joined(
        arrived.rows.keys.take(pa.array(parents)),
        PlacedRows(left.values, on_left),
        PlacedRows(right.values, on_right),
    )
    # The two sides of a self-join may bring the same row, which has one order.
    made = arrived.rows.children(values, parents, digits_of(arrived.ranks[parents]))
    times = np.maximum(_of(left.times, on_left), _of(right.times, on_right))
    return replace(made, times=times)


def _match_order(matches: Matches) -> Int64s:
    """The order of the matches: by the row that came last, then by its partner."""
    left, right = matches.left, matches.right
    parents = np.maximum(left.rows[matches.lefts], right.rows[matches.rights])
    by_left = left.rows[matches.lefts] == parents
    partners = [
        np.where(by_left, of_right[matches.rights], of_left[matches.lefts])
        for of_left, of_right in (
            (left.places, right.places),
            (left.steps, right.steps),
            (left.times, right.times),
        )
    ]
    return np.lexsort((*partners, parents))


def _of(column: Int64s, places: Int64s) -> Int64s:
    """The values at these places, less than all others where there is no row."""
    return np.append(column, np.iinfo(np.int64).min)[places]


def lone_values(
    columns: JoinColumns,
    side: JoinSide,
    keys: pa.Table,
    rows: PlacedRows,
    window: pa.Table | None = None,
) -> pa.Table:
    """The output of rows of one side that have no partner: the other side's columns are NULL."""
    other = JoinSide(1 - side)
    nothing = no_rows(columns.of(other).empty_table(), len(rows.places))
    left, right = (nothing, rows) if side else (rows, nothing)
    return columns.joined(keys, left, right, window)
