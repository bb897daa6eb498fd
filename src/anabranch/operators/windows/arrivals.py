"""The rows of a step as a windowed operator takes them: in order, the late ones apart."""

from __future__ import annotations

import numpy as np

from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows
from anabranch.records.bins import Mask
from anabranch.records.times import TOO_FAR


def ordered_rows(rows: Rows | None) -> Rows | None:
    """The rows in their order; None if there are none."""
    if rows is None or not len(rows):
        return None
    places = None if rows.order is None else rows.order.permutation()
    return rows if places is None else rows.take(places)


def times_of(rows: Rows) -> Int64s:
    """The event times; the typing of dataflows sees to it that rows here have them."""
    assert rows.times is not None
    return rows.times


def fired_rows(rows: Rows) -> Mask:
    """Which rows notifications upstream have made."""
    return np.zeros(len(rows), dtype=np.bool_) if rows.fired is None else rows.fired


def too_far(rows: Rows) -> Mask:
    """Which rows are further ahead than their stream allows."""
    found: Mask = times_of(rows) == TOO_FAR
    return found


def part_rows(rows: Rows, late: Mask) -> tuple[Rows | None, Rows | None]:
    """The rows that are not late, and those that are; None if there are none."""
    if not late.any():
        return rows, None
    if late.all():
        return None, rows
    return rows.take(np.flatnonzero(~late)), rows.take(np.flatnonzero(late))
