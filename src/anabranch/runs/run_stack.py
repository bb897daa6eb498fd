"""The runs of an owner's bins, opened, newest first: what they say, and their compaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.errors import ChangedDataflow
from anabranch.records.bins import BinSet, Mask, bin_of
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList, restrict
from anabranch.runs.compaction import Stack
from anabranch.runs.expiry import bury_expired, expired_rows
from anabranch.runs.keys import Index
from anabranch.runs.rows import drop_tombstones, merge_rows
from anabranch.runs.run_file import Run, blob_rows
from anabranch.runs.sorted_rows import SortedRows, concat_rows, hash_column
from anabranch.runs.state_files import StateFiles

#: Bins are compacted a few at a time, so that memory stays bounded however large the state is.
COMPACTION_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CompactedBins:
    """Some bins' rows after compaction, and per bin how many that were counted had expired."""

    rows: pa.RecordBatch
    died: Index | None


class StackedRuns:
    """An operator's runs for some bins. They are opened when they are first needed."""

    def __init__(
        self,
        operator: str,
        layout: Layout,
        runs: RunList,
        files: StateFiles,
        bins: int,
        owned: BinSet,
    ) -> None:
        """``runs`` is the operator's whole list: others may need files of which some is owned."""
        self._operator = operator
        self._layout = layout
        self._files = files
        self._bins = bins
        self._all = {listed.run.name: listed.bins for listed in runs}
        self.listed = restrict(runs, owned)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs of the owned bins, newest first, opened."""
        opened = self._files.open(self.listed)
        for run in opened:
            if run.rows.schema != self._layout.schema or run.bins != self._bins:
                raise ChangedDataflow(
                    f"The state of {self._operator!r} was kept with other columns or bins",
                    where=run.info.name,
                    do="Run the dataflow that wrote it, or use another directory.",
                )
        return opened

    @cached_property
    def stack(self) -> Stack:
        """The runs as the numbers that the compaction policy sees."""
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
    def counted(self) -> list[tuple[SortedRows, Mask]]:
        """The rows of each run, and the bins it counts for."""
        return [(run.rows, mask) for run, mask in zip(self.runs, self.stack.listed, strict=True)]

    def bin_bytes(self, chosen: Mask) -> Index:
        """The bytes of the chosen bins of each run, blobs left out."""
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
        """How many rows each bin has that expired, those that a newer one hides among them.

        Those are dead twice in the eyes of the compaction policy, which comes a little early then.
        """
        numbers = np.zeros(self._bins, dtype=np.int64)
        for run, mask in zip(self.runs, self.stack.listed, strict=True):
            if run.expiry is not None:
                numbers += np.where(mask, run.expiry.expired(now_ns), 0)
        return numbers

    def dead_blobs(self, delta: pa.RecordBatch, now_ns: int | None) -> Index:
        """How deep each bin must be merged so that no blob stays that nobody needs.

        A blob dies when the changes replace its row or when it expires. It is so large that
        its bin is merged at once, whatever the share of dead rows.
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

    def compacted(
        self, delta: pa.RecordBatch, offsets: Index, depths: Index, now_ns: int | None
    ) -> Iterator[CompactedBins]:
        """The changes merged with the newest ``depths`` runs of each bin, each with its own bins.

        ``offsets`` is where each bin begins in the changes. The newest row of a key that has
        expired becomes a tombstone. Tombstones go where a bin is merged down to its oldest run.
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
            rows, died = merge_rows(self._layout, parts), None
            if self._layout.expires:
                rows, expired = bury_expired(self._layout, rows, now_ns)
                numbers = bin_of(hash_column(rows)[expired], self._bins)
                died = np.bincount(numbers, minlength=self._bins)
            rows = drop_tombstones(self._layout, rows, at_bottom, self._bins)
            if rows.num_rows or died is not None:
                yield CompactedBins(rows, died)


def _spans(sizes: Index) -> Iterator[tuple[int, int]]:
    """Ranges of bins that are compacted together: whole bins, as many as fit in memory well."""
    first, held = 0, 0.0
    for last, size in enumerate(sizes.tolist(), start=1):
        held += size
        if held >= COMPACTION_BYTES:
            yield first, last
            first, held = last, 0.0
    if held:
        yield first, len(sizes)
