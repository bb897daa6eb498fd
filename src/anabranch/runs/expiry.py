"""Time-to-live: rows that are not held any more from a time on, and how many of them a run has."""

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

#: Into how many parts of about the same size a run's rows are put, by their expiry.
PARTS = 16


def clock_of(layout: Layout, now_ns: int | None) -> int | None:
    """The clock where rows expire, None where not; refuses to do without where they do."""
    if not layout.expires:
        return None
    if now_ns is None:
        raise ValueError("rows of this state expire: the clock of the step is needed")
    return now_ns


def expired_rows(layout: Layout, rows: pa.RecordBatch, now_ns: int | None) -> Mask:
    """Which rows have expired: those whose time is the clock's or before.

    The rows have the column of expiry under its name; the others may be missing.
    """
    now = pa.scalar(clock_of(layout, now_ns), pa.int64())
    return to_mask(pc.fill_null(pc.less_equal(rows.column(EXPIRY), now), False))


def bury_expired(
    layout: Layout, rows: pa.RecordBatch, now_ns: int | None
) -> tuple[pa.RecordBatch, Mask]:
    """The rows with tombstones in place of what has expired, and which those are.

    A row that expired may hide an older one of its key, which a merge that only dropped the row
    would bring back: it goes as a tombstone does, at the bottom of its bin.
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
    """How many rows of each bin expire when, coarsely.

    ``counts`` has a row per bin: how many of its rows expire at ``edges[i]`` or before, but after
    the edge before it. Rows that never expire are in none.
    """

    edges: Index
    counts: Index

    def expired(self, now_ns: int) -> Index:
        """How many rows of each bin have expired for certain: at most a part of them more have."""
        past = int(np.searchsorted(self.edges, now_ns, side="right"))
        numbers: Index = self.counts[:, :past].sum(axis=1)
        return numbers


def histogram_of(layout: Layout, batches: Sequence[pa.RecordBatch], bins: int) -> Histogram:
    """The histogram of a run's rows."""
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
    """Some of the times that cut them into parts of about the same size; the last is the latest."""
    if not len(times):
        return times
    ranks = np.arange(1, PARTS + 1) * len(times) // PARTS - 1
    ranks = np.unique(np.maximum(ranks, 0))
    chosen: Index = np.partition(times, ranks)[ranks]
    return chosen
