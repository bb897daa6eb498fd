"""``mode``, ``percentile``, ``median``: exact, from the count of every distinct value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.lists import (
    FlatLists,
    concat_lists,
    flatten_lists,
    lengths_of,
    normalize_zeros,
    offsets_of,
)
from anabranch.operators.aggregates.port import Function, Segments, State
from anabranch.operators.order.row_order import Int64s

MEDIAN = 0.5


class ValueCounts(Function):
    """The functions of a key's distinct values, kept sorted with the count of each."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The values and their counts, two lists of one length."""
        return [("values", pa.list_(self.spec.kind)), ("counts", pa.list_(pa.int64()))]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """Count the step's values."""
        values, owner = step.present()
        ones = pa.array(np.ones(len(values), dtype=np.int64))
        counted = FlatLists((normalize_zeros(values), ones), owner)
        return _add_counts(counted).lists(len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Add the counts of both."""
        both = concat_lists(flatten_lists(before), flatten_lists(after))
        return _add_counts(both).lists(len(before[0]), where)

    def result(self, state: State, where: str) -> pa.Array:
        """The most frequent value, or the value at a share of all values."""
        if self.spec.function == "mode":
            return _mode(state)
        if self.spec.function == "median":
            return _percentile(state, MEDIAN)
        wanted = self.spec.parameters[0]
        between = self.spec.function == "percentile"
        if not isinstance(wanted, tuple):
            assert isinstance(wanted, float)
            return _percentile(state, wanted, between=between)
        return zip_to_lists([_percentile(state, share, between=between) for share in wanted])


def _add_counts(counted: FlatLists) -> FlatLists:
    """The distinct values of each owner, sorted, with the sum of the counts of each."""
    order, new = counted.order_by_value()
    counts = counted.columns[1].to_numpy()[order]
    summed = np.add.reduceat(counts, np.flatnonzero(new)) if len(order) else counts
    distinct = counted.take(order[new])
    return FlatLists((distinct.values, pa.array(summed, type=pa.int64())), distinct.owner)


def zip_to_lists(columns: list[pa.Array]) -> pa.Array:
    """A list per row with the values of all columns; NULL if they are NULL."""
    rows, width = len(columns[0]), len(columns)
    places = np.arange(rows * width).reshape(width, rows).T.ravel()
    values = pa.concat_arrays(columns).take(pa.array(places))
    nothing = columns[0].is_null().to_numpy(zero_copy_only=False)
    offsets = pa.array(np.arange(0, rows * width + 1, width), type=pa.int32())
    mask = pa.array(nothing) if nothing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def _mode(state: State) -> pa.Array:
    """The most frequent value; of several, the least."""
    found = flatten_lists(state)
    some = lengths_of(state[0]) > 0
    place = np.zeros(len(some), dtype=np.int64)
    if some.any():
        counts = found.columns[1].to_numpy()
        starts = offsets_of(found.owner, len(some))[:-1][some]
        most = np.zeros(len(some), dtype=np.int64)
        most[some] = np.maximum.reduceat(counts, starts)
        rows = np.where(counts == most[found.owner], np.arange(len(counts)), len(counts))
        place[some] = np.minimum.reduceat(rows, starts)
    return found.values.take(pa.array(place, mask=~some))


def _percentile(state: State, share: float, *, between: bool = True) -> pa.Array:
    """The value at a share of all values: interpolated if ``between``, else the first there."""
    found = flatten_lists(state)
    lengths = lengths_of(state[0])
    some = lengths > 0
    if not some.any():
        return pa.nulls(len(some), pa.float64())
    ends = np.cumsum(found.columns[1].to_numpy())
    edges = np.concatenate(([0], ends))
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    begin, end = edges[offsets[:-1]], edges[offsets[1:]]
    values = found.values.to_numpy()
    if not between:
        reached = np.maximum(np.ceil(share * (end - begin)) - 1, 0)
        return pa.array(values[_row_at(ends, begin, reached)], mask=~some)
    place = share * np.maximum(end - begin - 1, 0)
    below, above = np.floor(place), np.ceil(place)
    lower = values[_row_at(ends, begin, below)]
    upper = values[_row_at(ends, begin, above)]
    with np.errstate(invalid="ignore"):
        mixed = (above - place) * lower + (place - below) * upper
    return pa.array(np.where((below == above) | (lower == upper), lower, mixed), mask=~some)


def _row_at(
    ends: Int64s, begin: Int64s, place: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> Int64s:
    """The row of each owner's value at this place among its values."""
    rows: Int64s = np.searchsorted(ends, begin + place.astype(np.int64), side="right")
    return np.minimum(rows, len(ends) - 1)
