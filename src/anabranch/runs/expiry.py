"""Time-to-live: which rows have expired, and how many of a run's rows expire when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.records.bins import Mask, bin_of
from anabranch.records.layout import EXPIRY, Layout
from anabranch.runs.keys import Index, to_mask
from anabranch.runs.sorted_rows import hash_column

#: The number of parts of about equal size in a run's expiry histogram.
PARTS = 16


def clock_for(layout: Layout, now_ns: int | None) -> int | None:
    """The clock if rows expire, else None; ``ValueError`` if they do and there is no clock."""
    if not layout.expires:
        return None
    if now_ns is None:
        raise ValueError("rows of this state expire, so the step's clock is required")
    return now_ns


def expired_rows(layout: Layout, rows: pa.RecordBatch, now_ns: int | None) -> Mask:
    """Which rows have expired, at or before the clock; only their expiry column is needed."""
    now = pa.scalar(clock_for(layout, now_ns), pa.int64())
    return to_mask(pc.fill_null(pc.less_equal(rows.column(EXPIRY), now), False))


def tombstone_expired(
    layout: Layout, rows: pa.RecordBatch, now_ns: int | None
) -> tuple[pa.RecordBatch, Mask]:
    """Replace expired rows by tombstones; return the rows, and which of them expired.

    An expired row may hide an older row of its key, which dropping it would bring back. So it
    becomes a tombstone, which goes when its bin is merged to the bottom.
    """
    expired = expired_rows(layout, rows, now_ns)
    if not expired.any():
        return rows, expired
    kept = pa.array(np.arange(len(expired)), mask=expired)
    columns = list(rows.columns)
    for column in layout.payload_columns:
        columns[column] = columns[column].take(kept)
    gone = to_mask(columns[layout.tombstone_column]) | expired
    columns[layout.tombstone_column] = pa.array(gone)
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema), expired


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """A coarse histogram of when the rows of each bin expire.

    ``counts`` has a row per bin: how many of its rows expire after ``edges[i - 1]``, up to and
    including ``edges[i]``. Rows that never expire are not counted.
    """

    edges: Index
    counts: Index

    def expired(self, now_ns: int) -> Index:
        """How many rows of each bin have certainly expired; at most one more part may have."""
        past = int(np.searchsorted(self.edges, now_ns, side="right"))
        numbers: Index = self.counts[:, :past].sum(axis=1)
        return numbers


def histogram_of(layout: Layout, batches: Sequence[pa.RecordBatch], bins: int) -> Histogram:
    """Count when the rows of a run expire."""
    times, numbers = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for batch in batches:
        column = batch.column(layout.expiry_column)
        times.append(column.drop_null().to_numpy())
        numbers.append(bin_of(hash_column(batch), bins)[to_mask(column.is_valid())])
    time, number = np.concatenate(times), np.concatenate(numbers)
    edges = np.unique(_quantiles(time))
    part = np.searchsorted(edges, time)
    cells = np.bincount(number * len(edges) + part, minlength=bins * len(edges))
    return Histogram(edges, cells.reshape(bins, len(edges)).astype(np.int64))


def _quantiles(times: Index) -> Index:
    """The times that cut all times into parts of about equal size; the last is the latest."""
    if not len(times):
        return times
    ranks = np.arange(1, PARTS + 1) * len(times) // PARTS - 1
    ranks = np.unique(np.maximum(ranks, 0))
    chosen: Index = np.partition(times, ranks)[ranks]
    return chosen
