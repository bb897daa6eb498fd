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

    def places_after(self, time: int, chosen: Mask) -> Index:
        """Where in the due order of each bin the rows begin that fall due after a time.

        A binary search in all chosen bins at the same time. For the others: where the bin begins.
        """
        low = self.edges[:-1].copy()
        high = np.where(chosen, self.edges[1:], low)
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            past = self.times(middle, open_) <= time
            low[open_[past]] = middle[past] + 1
            high[open_[~past]] = middle[~past]
        return low

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
        # One place a bin, and the bins ascend: so do the positions.
        positions = self.positions(places[inside], bins[inside])
        found = self.rows.take(positions, [self.layout.expiry_column]).column(0)
        times[inside] = _times(found)
        return times


def _times(expiry: pa.Array) -> Index:
    times: Index = expiry.fill_null(NEVER).to_numpy(zero_copy_only=False)
    return times
