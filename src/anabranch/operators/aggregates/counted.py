"""``mode``, ``percentile``, ``median``: exact, from every value with how often it came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.lists import (
    Flat,
    flat,
    join_flat,
    lengths_of,
    offsets_of,
    one_zero,
)
from anabranch.operators.aggregates.port import FunctionSpec, Int64s, Segments, State, where_not

MEDIAN = 0.5


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """What follows from the different values, sorted, and how often each came."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The values and their counts, two lists of one length."""
        return [("values", pa.list_(self.given.kind)), ("counts", pa.list_(pa.int64()))]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Add the step's counts."""
        values, owner = step.present()
        ones = pa.array(np.ones(len(values), dtype=np.int64))
        everything = join_flat(flat(before), Flat((one_zero(values), ones), owner))
        order, new = everything.order_by_value()
        counts = everything.columns[1].to_numpy()[order]
        summed = np.add.reduceat(counts, np.flatnonzero(new)) if len(order) else counts
        kept = everything.take(order[new])
        merged = Flat((kept.values, pa.array(summed, type=pa.int64())), kept.owner)
        return merged.lists(len(step), step.where)

    def shown(self, kept: State, where: str) -> pa.Array:
        """The most frequent value, or the value at a share of the way through all of them."""
        if self.given.function == "mode":
            return _mode(kept)
        if self.given.function == "median":
            return _percentile(kept, MEDIAN)
        wanted = self.given.parameters[0]
        between = self.given.function == "percentile"
        if not isinstance(wanted, tuple):
            assert isinstance(wanted, float)
            return _percentile(kept, wanted, between=between)
        return side_by_side([_percentile(kept, share, between=between) for share in wanted])


def side_by_side(columns: list[pa.Array]) -> pa.Array:
    """Lists with one value of each column; NULL where the columns are NULL."""
    rows, width = len(columns[0]), len(columns)
    places = np.arange(rows * width).reshape(width, rows).T.ravel()
    values = pa.concat_arrays(columns).take(pa.array(places))
    nothing = columns[0].is_null().to_numpy(zero_copy_only=False)
    offsets = pa.array(np.arange(0, rows * width + 1, width), type=pa.int32())
    mask = pa.array(nothing) if nothing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def _mode(kept: State) -> pa.Array:
    """The value that came most often; of several, the least."""
    found = flat(kept)
    some = lengths_of(kept[0]) > 0
    place = np.zeros(len(some), dtype=np.int64)
    if some.any():
        counts = found.columns[1].to_numpy()
        starts = offsets_of(found.owner, len(some))[:-1][some]
        most = np.zeros(len(some), dtype=np.int64)
        most[some] = np.maximum.reduceat(counts, starts)
        rows = np.where(counts == most[found.owner], np.arange(len(counts)), len(counts))
        place[some] = np.minimum.reduceat(rows, starts)
    return found.values.take(pa.array(place, mask=~some))


def _percentile(kept: State, share: float, *, between: bool = True) -> pa.Array:
    """Between the two values around the place, in proportion; else the first that reaches it."""
    found = flat(kept)
    lengths = lengths_of(kept[0])
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
        return where_not(values[_row_at(ends, begin, reached)], ~some)
    place = share * np.maximum(end - begin - 1, 0)
    below, above = np.floor(place), np.ceil(place)
    lower = values[_row_at(ends, begin, below)]
    upper = values[_row_at(ends, begin, above)]
    with np.errstate(invalid="ignore"):
        mixed = (above - place) * lower + (place - below) * upper
    return where_not(np.where((below == above) | (lower == upper), lower, mixed), ~some)


def _row_at(
    ends: Int64s, begin: Int64s, place: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> Int64s:
    """The row that holds the value of each owner at this place among its values."""
    rows: Int64s = np.searchsorted(ends, begin + place.astype(np.int64), side="right")
    return np.minimum(rows, len(ends) - 1)
