"""Rows that fall due: an index of each bin's rows by their expiry, and searches in it.

The index is a column of the run (see ``Layout``), so it moves with its bin and costs four bytes a
row. A search touches a few pages of each bin, however many rows wait there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Mask
from anabranch.records.layout import Layout
from anabranch.runs.keys import Index
from anabranch.runs.sort_pairs import sort_pairs
from anabranch.runs.sorted_rows import SortedRows

NEVER = np.iinfo(np.int64).max
"""The due time of a row that never falls due."""


FAN = 8
"""How many rows of a bin a search looks at in a round."""


def with_due_order(layout: Layout, rows: pa.RecordBatch, offsets: Index) -> pa.RecordBatch:
    """The rows with their due order; ``offsets`` is where each bin begins among them."""
    times = _times(rows.column(layout.expiry_column))
    bins = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = sort_pairs(bins, times) - offsets[bins]
    columns = list(rows.columns)
    columns[layout.due_column] = pa.array(order.astype(np.int32))
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


@dataclass(frozen=True, slots=True, eq=False)
class DueIndex:
    """The due order of a run's rows. ``edges`` is where each bin begins among them."""

    layout: Layout
    rows: SortedRows
    edges: Index

    def places_after(self, time: int, chosen: Mask, begin: Index | None = None) -> Index:
        """Where in the due order of each bin the rows begin that fall due after a time.

        A search in all chosen bins at the same time. For the others: where the bin begins. With
        ``begin``, the places for an earlier time, it takes few rounds if few rows lie between.
        """
        low = self.edges[:-1].copy() if begin is None else begin.copy()
        high = np.where(chosen, self.edges[1:], low)
        if begin is not None:
            self._gallop(time, low, high)
        while len(open_ := np.flatnonzero(low < high)):
            probes = low[open_, None] + (high - low)[open_, None] * np.arange(FAN) // FAN
            times = self._times_at(probes.ravel(), np.repeat(open_, FAN)).reshape(probes.shape)
            past = (times <= time).sum(axis=1)
            some, rest = np.flatnonzero(past), np.flatnonzero(past < FAN)
            low[open_[some]] = probes[some, past[some] - 1] + 1
            high[open_[rest]] = probes[rest, past[rest]]
        return low

    def _gallop(self, time: int, low: Index, high: Index) -> None:
        """Bring ``low`` and ``high`` closer to what is sought, from ``low`` on in growing steps."""
        open_, step = np.flatnonzero(low < high), FAN
        while len(open_):
            probes = np.minimum(low[open_] + step, high[open_]) - 1
            past = self._times_at(probes, open_) <= time
            low[open_[past]] = probes[past] + 1
            high[open_[~past]] = probes[~past]
            open_, step = open_[past & (probes + 1 < high[open_])], step * FAN

    def positions(self, places: Index, bins: Index) -> Index:
        """The positions of the rows at these places in the due orders of their bins.

        Both must ascend.
        """
        order = self.rows.take(places, [self.layout.due_column]).column(0)
        found: Index = order.to_numpy(zero_copy_only=False).astype(np.int64) + self.edges[bins]
        return found

    def times(self, places: Index, bins: Index) -> Index:
        """When the rows at these places fall due; ``NEVER`` at the end of a bin."""
        inside = places < self.edges[1:][bins]
        times = np.full(len(places), NEVER, dtype=np.int64)
        times[inside] = self._times_at(places[inside], bins[inside])
        return times

    def _times_at(self, places: Index, bins: Index) -> Index:
        positions = self.positions(places, bins)
        order = np.argsort(positions)
        found = self.rows.take(positions[order], [self.layout.expiry_column]).column(0)
        times = np.empty(len(places), dtype=np.int64)
        times[order] = _times(found)
        return times


def _times(expiry: pa.Array) -> Index:
    times: Index = expiry.fill_null(NEVER).to_numpy(zero_copy_only=False)
    return times
