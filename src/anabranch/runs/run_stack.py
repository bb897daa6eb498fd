"""The open runs of an owner's bins, newest first, and how they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.errors import ChangedDataflow
from anabranch.records.bins import BinSet, Mask, bin_of
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList, restrict
from anabranch.runs.compaction import Stack
from anabranch.runs.expiry import expired_rows, tombstone_expired
from anabranch.runs.keys import Index
from anabranch.runs.rows import drop_tombstones, merge_rows
from anabranch.runs.run_file import Run, blob_rows
from anabranch.runs.sorted_rows import SortedRows, concat_rows, hash_column
from anabranch.runs.state_files import StateFiles

#: The bytes that are merged at a time, so that memory stays bounded however large the state is.
COMPACTION_BYTES = 16 << 20


class RunStack:
    """An operator's runs for the owned bins, opened on first use."""

    def __init__(
        self,
        operator: str,
        layout: Layout,
        runs: RunList,
        files: StateFiles,
        bins: int,
        owned: BinSet,
    ) -> None:
        """Take the operator's whole list: other owners may need the same files."""
        self._operator = operator
        self._layout = layout
        self._files = files
        self._bins = bins
        self._all = {listed.run.name: listed.bins for listed in runs}
        self.listed = restrict(runs, owned)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The open runs of the owned bins, newest first."""
        opened = self._files.open(self.listed)
        for run in opened:
            if run.rows.schema != self._layout.schema or run.bins != self._bins:
                raise ChangedDataflow(
                    f"The state of {self._operator!r} has other columns or another number of bins",
                    where=run.info.name,
                    do="Run the dataflow that wrote it, or use another directory.",
                )
        return opened

    @cached_property
    def stack(self) -> Stack:
        """The row counts of the runs, for the compaction policy."""
        shape = (len(self.listed), self._bins)
        rows = np.zeros(shape, dtype=np.int64)
        shares = np.ones(shape[0])
        for place, (run, listed) in enumerate(zip(self.runs, self.listed, strict=True)):
            rows[place] = np.where(listed.bins.mask(self._bins), run.bin_rows, 0)
            anybody = self._all[run.info.name].mask(self._bins)
            shares[place] = run.bin_rows[anybody].sum() / run.info.rows
        sizes = np.array([run.info.bytes for run in self.runs], dtype=np.int64)
        totals = np.array([run.info.rows for run in self.runs], dtype=np.int64)
        return Stack(rows, shares, sizes, totals if self._layout.expires else None)

    @property
    def members(self) -> list[tuple[SortedRows, Mask]]:
        """The rows of each run, and the bins it is listed for."""
        return [(run.rows, mask) for run, mask in zip(self.runs, self.stack.listed, strict=True)]

    def bin_bytes(self, chosen: Mask) -> Index:
        """The bytes per bin in the chosen bins of each run, without blobs."""
        sizes = np.zeros(self._bins, dtype=np.int64)
        for run, mask in zip(self.runs, chosen, strict=True):
            sizes += np.where(mask, run.bin_bytes, 0)
        return sizes

    def blob_bytes(self) -> Index:
        """The bytes of the blobs of each bin."""
        sizes = np.zeros(self._bins, dtype=np.int64)
        for listed in self.listed:
            for blob in listed.run.blobs:
                sizes[blob.bin] += blob.bytes if blob.bin in listed.bins else 0
        return sizes

    def expired(self, now_ns: int) -> Index:
        """How many rows of each bin have expired, including those that a newer row hides.

        The compaction policy counts hidden ones as dead twice, so it merges a little early.
        """
        numbers = np.zeros(self._bins, dtype=np.int64)
        for run, mask in zip(self.runs, self.stack.listed, strict=True):
            if run.expiry is not None:
                numbers += np.where(mask, run.expiry.expired(now_ns), 0)
        return numbers

    def dead_blobs(self, delta: pa.RecordBatch, now_ns: int | None) -> Index:
        """How deep each bin must be merged to drop all dead blobs.

        A blob dies when the changes replace its row or when it expires. Blobs are so large that
        the bin is then merged at once, whatever its share of dead rows.
        """
        layout, depths = self._layout, np.zeros(self._bins, dtype=np.int64)
        hashes, keys = hash_column(delta), delta.select(layout.identity_columns)
        for run, places in zip(self.runs, self.stack.places, strict=True):
            if not run.info.blobs:
                continue
            chosen = np.zeros(self._bins, dtype=np.bool_)
            chosen[[blob.bin for blob in run.info.blobs]] = True
            parts = [blob_rows(layout, part) for part in run.select(chosen & (places > 0))]
            kept = concat_rows(layout.schema, parts)
            held = SortedRows(layout.schema, [kept])
            match = held.match_entries if layout.has_subkeys else held.match
            _, dead = match(layout, hashes, keys, np.arange(len(hashes)))
            gone = [hash_column(kept)[dead]]
            if layout.expires:
                gone.append(hash_column(kept)[expired_rows(layout, kept, now_ns)])
            numbers = np.unique(bin_of(np.concatenate(gone), self._bins))
            depths[numbers] = np.maximum(depths[numbers], places[numbers])
        return depths

    def merge(
        self, delta: pa.RecordBatch, offsets: Index, depths: Index, now_ns: int | None
    ) -> Iterator[tuple[pa.RecordBatch, Index]]:
        """Merge changes with the newest ``depths`` runs of each bin, a few bins at a time.

        Yields the rows of some bins, and how many live rows of each bin had expired.
        ``offsets`` is where each bin begins in the changes. If the newest row of a key has
        expired, it becomes a tombstone. A bin merged down to its oldest run loses its tombstones.
        """
        absorbed = self.stack.absorbed(depths)
        at_bottom = depths >= self.stack.heights
        share = delta.nbytes / max(delta.num_rows, 1)
        sizes = np.diff(offsets) * share + self.bin_bytes(absorbed)
        for first, last in _spans(sizes):
            span = np.zeros(self._bins, dtype=np.bool_)
            span[first:last] = True
            start, stop = int(offsets[first]), int(offsets[last])
            parts = [delta.slice(start, stop - start)]
            for run, mask in zip(self.runs, absorbed, strict=True):
                parts.extend(run.select(mask & span))
            rows, died = merge_rows(self._layout, parts), np.zeros(self._bins, dtype=np.int64)
            if self._layout.expires:
                rows, expired = tombstone_expired(self._layout, rows, now_ns)
                numbers = bin_of(hash_column(rows)[expired], self._bins)
                died = np.bincount(numbers, minlength=self._bins)
            yield drop_tombstones(self._layout, rows, at_bottom, self._bins), died


def _spans(sizes: Index) -> Iterator[tuple[int, int]]:
    """Cut the bins into ranges of about ``COMPACTION_BYTES`` that are merged together."""
    first, held = 0, 0.0
    for last, size in enumerate(sizes.tolist(), start=1):
        held += size
        if held >= COMPACTION_BYTES:
            yield first, last
            first, held = last, 0.0
    if held:
        yield first, len(sizes)
