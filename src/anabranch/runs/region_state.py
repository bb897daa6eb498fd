"""One operator's state in the bins of one owner: look-up, write and scan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.records.bins import BinSet, Hashes, Mask, bin_of, bin_offsets, check_hashes
from anabranch.records.layout import Layout
from anabranch.records.run_list import Listed, RunInfo, RunList
from anabranch.runs.blobs import read_blobs, write_blobs
from anabranch.runs.changes import KeyChanges, Rows, fit, sorted_order, to_rows
from anabranch.runs.compaction import (
    LIMITS,
    CompactionLimits,
    average_budget,
    choose_depths,
    default_budget,
)
from anabranch.runs.due import DueIndex, with_due_order
from anabranch.runs.due_rows import DueRows
from anabranch.runs.entries import Entries, entries_of_keys
from anabranch.runs.expiry import clock_for
from anabranch.runs.keys import Index, one_batch, to_mask
from anabranch.runs.rows import LookupResult, lookup
from anabranch.runs.run_file import Create, Run, write_run
from anabranch.runs.run_stack import RunStack
from anabranch.runs.sorted_rows import SortedRows, hash_column
from anabranch.runs.state_files import StateFiles, StoreFiles

NONE = BinSet()
DUE_ROWS = 100_000
"""About how many rows that fall due are in memory at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class WriteResult:
    """The result of a write, for the commit.

    ``runs`` is the new list of the owned bins (``run_list.replace`` puts it into the operator's),
    ``run`` the new file, None if no rows were left. ``live`` is the number of keys per bin, or of
    entries if the layout has sub-keys; bins of other owners are unchanged. Expired rows count
    until they are overwritten, forgotten or merged away, so ``live`` may depend on when bins were
    merged. ``compacted_rows`` and ``compacted_bytes`` are what was read from older runs,
    ``compaction_seconds`` how long that took without writing the result. ``due`` is what falls due
    afterwards, if rows do.
    """

    run: RunInfo | None
    runs: RunList
    live: Index
    changed_rows: int
    compacted_rows: int
    compacted_bytes: int
    compaction_seconds: float
    due: DueRows | None = None

    def next_due(self, since: int) -> Index:
        """``RegionState.next_due`` after the write; nothing is read again."""
        assert self.due is not None, "rows of this state do not fall due"
        return self.due.next_after(since, len(self.live))


class RegionState:
    """One operator's state in the bins of one owner, at one step.

    ``runs`` is the operator's whole list, not only the owner's part: how much of a file others
    still need decides whether to rewrite it. Runs are opened on first use. The object is a
    snapshot: a write leaves it unchanged and returns what is new.

    If rows expire, every call needs the step's clock, ``now_ns``. The clock must not go back from
    step to step: expired rows that were merged away do not return.
    """

    def __init__(
        self,
        operator: str,
        layout: Layout,
        runs: RunList,
        root: Path,
        bins: int,
        owned: BinSet,
        live: Sequence[int] | Index,
        *,
        limits: CompactionLimits = LIMITS,
        files: StateFiles | None = None,
    ) -> None:
        """Take the state as a commit describes it; ``live`` has a number per bin.

        ``files`` reads and creates runs and blobs; the default is directly in the store ``root``.
        """
        self.operator = operator
        self.layout = layout
        self.bins = bins
        self.owned = owned
        self.live: Index = np.asarray(live, dtype=np.int64)
        if self.live.shape != (bins,):
            raise ValueError(f"live keys of {bins} bins expected, not {self.live.shape}")
        self._root = root
        self._limits = limits
        self._files: StateFiles = StoreFiles(root) if files is None else files
        self._stack = RunStack(operator, layout, runs, self._files, bins, owned)

    def lookup(
        self, hashes: Hashes, keys: Rows, now_ns: int | None = None
    ) -> tuple[Mask, pa.RecordBatch]:
        """Look up keys: which of them are held, and their values, NULL if not held.

        The keys must be sorted by hash, unique and in owned bins.
        """
        held = self.find(hashes, keys, now_ns)
        return held.found, held.values

    def find(self, hashes: Hashes, keys: Rows, now_ns: int | None = None) -> LookupResult:
        """Look up keys like ``lookup``, with their expiry and expired rows that still count.

        In state with sub-keys, ``keys`` has the columns of both, see ``changes.identity``.
        """
        return self._read_blobs(self._find(hashes, one_batch(keys), now_ns))

    def entries(self, hashes: Hashes, keys: Rows, now_ns: int | None = None) -> Entries:
        """Look up all entries of keys in state with sub-keys; the keys as in ``lookup``."""
        self._check_owned(hashes)
        layout, now_ns = self.layout, clock_for(self.layout, now_ns)
        offsets, rows = entries_of_keys(
            layout, self._stack.members, self.bins, hashes, one_batch(keys), now_ns
        )
        rows = self._fill_blobs(rows)
        return Entries(layout, rows.select(range(1 + len(layout.keys), rows.num_columns)), offsets)

    def write(
        self,
        changed: KeyChanges | None,
        name: str,
        *,
        found: Mask | None = None,
        budget: int | None = None,
        create: Create | None = None,
        now_ns: int | None = None,
        still: BinSet = NONE,
        bursts: bool = True,
    ) -> WriteResult | None:
        """Write changes, merged with the runs that are due, to one new file; None if nothing is.

        ``found`` says which keys (or entries) were held before, if the caller knows. If rows
        expire, pass ``LookupResult.present``: expired rows still count. Forgetting a key that is
        not held leaves no trace. ``budget`` is the number of rows that merging may read. A write
        without changes still merges what is due. If the layout has blobs, large values go to files
        whose names begin with ``name``. Bins in ``still`` are being copied, so they are not merged
        unless they would have too many runs: a merge would make the copy useless. Without
        ``bursts`` merging only keeps up on average, which leaves the step time for other work.
        """
        create = self._files.create if create is None else create
        now_ns, stack = clock_for(self.layout, now_ns), self._stack.stack
        delta, live = self._delta(changed, found, now_ns, name, create)
        offsets = bin_offsets(hash_column(delta), self.bins)
        if budget is None:
            budget_of = default_budget if bursts else average_budget
            budget = budget_of(delta.num_rows, int(stack.rows.sum()), self._limits)
        depths = choose_depths(
            stack,
            np.diff(offsets),
            delta.nbytes,
            live if now_ns is None else live - self._stack.expired(now_ns),
            budget,
            self._limits,
        )
        depths[still.mask(self.bins) & (stack.heights < self._limits.run_limit)] = 0
        if self.layout.blobs:
            depths = np.maximum(depths, self._stack.dead_blobs(delta, now_ns))
        absorbed = stack.absorbed(depths)
        if not delta.num_rows and not absorbed.any():
            return None
        started = time.perf_counter()
        merged = list(self._stack.merge(delta, offsets, depths, now_ns))
        merging = time.perf_counter() - started if absorbed.any() else 0.0
        batches = [rows for rows, _ in merged if rows.num_rows]
        if self.layout.dues:
            batches = [with_due_order(self.layout, rows, self._offsets(rows)) for rows in batches]
        run = None
        if batches:
            run = write_run(
                self._root, name, self.operator, self.layout, batches, self.bins, create=create
            )
        return WriteResult(
            run,
            self._new_list(run, batches, absorbed),
            live - sum(died for _, died in merged),
            delta.num_rows,
            int(stack.rows[absorbed].sum()),
            int(self._stack.bin_bytes(absorbed).sum()),
            merging,
            self._due_after(batches, absorbed) if self.layout.dues else None,
        )

    def scan(self, now_ns: int | None = None) -> pa.Table:
        """All live rows, sorted, with the layout's columns except blob and tombstone."""
        batches = [self._fill_blobs(rows) for rows in self._live(self.owned, now_ns)]
        nothing = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        return pa.Table.from_batches(batches, schema=self._fill_blobs(nothing).schema)

    def keys(self, now_ns: int | None, bins: BinSet) -> pa.Table:
        """Hash and key of all live rows in some owned bins, sorted; a key may occur repeatedly."""
        columns = range(1 + len(self.layout.keys))
        schema = pa.schema([self.layout.schema.field(place) for place in columns])
        batches = [rows.select(columns) for rows in self._live(bins, now_ns)]
        return pa.Table.from_batches(batches, schema=schema)

    def due(self, since: int, until: int, *, most: int = DUE_ROWS) -> Iterator[pa.RecordBatch]:
        """The live rows that fall due after ``since``, up to and including ``until``, sorted.

        They have the layout's columns except blob, tombstone and due order. Some bins at a time,
        with about ``most`` rows. The state is that of the step before, whose frontier was
        ``since``. A row that a newer one replaces, at another time or for good, does not fall due.
        """
        for rows in self._due_rows.between(since, until, most):
            if rows.num_rows:
                yield self._fill_blobs(rows)

    def next_due(self, since: int) -> Index:
        """When the next live row of each bin falls due after ``since``; ``NEVER`` if none does.

        Never too late; too early behind many rows that newer ones replace.
        """
        return self._due_rows.next_after(since, self.bins)

    @property
    def _due_rows(self) -> DueRows:
        runs, listed = self._stack.runs, self._stack.stack.listed
        return DueRows(self.layout, [self._due_index(run) for run in runs], listed)

    def _due_after(self, batches: Sequence[pa.RecordBatch], absorbed: Mask) -> DueRows:
        """What falls due after a write of these batches, which need not be read again."""
        rows = SortedRows(self.layout.schema, batches)
        edges = sum((self._offsets(batch) for batch in batches), np.zeros(self.bins + 1, np.int64))
        indexes = [self._due_index(run) for run in self._stack.runs]
        return DueRows(
            self.layout,
            [DueIndex(self.layout, rows, edges), *indexes],
            np.vstack([np.diff(edges) > 0, self._stack.stack.listed & ~absorbed]),
        )

    def _due_index(self, run: Run) -> DueIndex:
        return DueIndex(self.layout, run.rows, run.edges)

    def _offsets(self, rows: pa.RecordBatch) -> Index:
        return bin_offsets(hash_column(rows), self.bins)

    def bytes_per_bin(self) -> Index:
        """The bytes of each owned bin in all its runs and blobs, dead rows included."""
        return self._stack.bin_bytes(self._stack.stack.listed) + self._stack.blob_bytes()

    def _live(self, bins: BinSet, now_ns: int | None) -> Iterator[pa.RecordBatch]:
        """The live rows of some bins, a few bins at a time."""
        nothing = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        none_changed = np.zeros(self.bins + 1, dtype=np.int64)
        depths = np.where(bins.mask(self.bins), self._stack.stack.heights, 0)
        clock = clock_for(self.layout, now_ns)
        for rows, _ in self._stack.merge(nothing, none_changed, depths, clock):
            yield rows

    def _check_owned(self, hashes: Hashes) -> None:
        check_hashes(hashes)
        foreign = ~self.owned.mask(self.bins)[bin_of(hashes, self.bins)]
        if foreign.any():
            number = bin_of(hashes[foreign][:1], self.bins)[0]
            raise ValueError(f"R1: bin {number} is not owned here ({self.operator})")

    def _find(self, hashes: Hashes, keys: pa.RecordBatch, now_ns: int | None) -> LookupResult:
        self._check_owned(hashes)
        now_ns = clock_for(self.layout, now_ns)
        return lookup(self.layout, self._stack.members, self.bins, hashes, keys, now_ns)

    def _read_blobs(self, held: LookupResult) -> LookupResult:
        if held.blob is None or held.blob.null_count == len(held.blob):
            return held
        return replace(held, values=read_blobs(self._files, held.values, held.blob))

    def _fill_blobs(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """State rows with the values of their blobs, without the columns blob and tombstone."""
        layout = self.layout
        last = layout.blob_column if layout.blobs else layout.tombstone_column
        visible = rows.select(range(last))
        if not layout.blobs or rows.column(last).null_count == rows.num_rows:
            return visible
        columns = list(visible.columns)
        values = read_blobs(self._files, rows.select(layout.value_columns), rows.column(last))
        for place, column in zip(layout.value_columns, values.columns, strict=True):
            columns[place] = column
        return pa.RecordBatch.from_arrays(columns, schema=visible.schema)

    def _delta(
        self,
        changed: KeyChanges | None,
        found: Mask | None,
        now_ns: int | None,
        name: str,
        create: Create,
    ) -> tuple[pa.RecordBatch, Index]:
        """The state rows of the changes, and each bin's live keys after them."""
        if changed is None or not len(changed):
            return pa.RecordBatch.from_pylist([], schema=self.layout.schema), self.live.copy()
        self._check_owned(changed.hashes)
        order = sorted_order(changed)
        blob = self._blobs(changed, name, create) if self.layout.blobs else None
        rows = to_rows(self.layout, changed, order, blob)
        if found is None:
            keys = rows.select(self.layout.identity_columns)
            held = self._find(hash_column(rows), keys, now_ns).present
        else:
            held = found[order]
        gone = to_mask(rows.column(self.layout.tombstone_column))
        numbers = bin_of(hash_column(rows), self.bins)
        born = np.bincount(numbers[~gone & ~held], minlength=self.bins)
        died = np.bincount(numbers[gone & held], minlength=self.bins)
        pointless = gone & ~held
        if pointless.any():
            rows = rows.filter(pa.array(~pointless))
        return rows, self.live + born - died

    def _blobs(self, changed: KeyChanges, name: str, create: Create) -> pa.Array | None:
        columns = fit("value", one_batch(changed.values), self.layout.values)
        values = pa.RecordBatch.from_arrays(columns, schema=self.layout.values)
        return write_blobs(self._root, name, values, changed.tombstone, create)

    def _new_list(
        self, run: RunInfo | None, batches: Sequence[pa.RecordBatch], absorbed: Mask
    ) -> RunList:
        """The new run, then the older runs with the bins that were not absorbed."""
        rest = (
            Listed(listed.run, listed.bins - BinSet.from_mask(mask))
            for listed, mask in zip(self._stack.listed, absorbed, strict=True)
        )
        older = tuple(listed for listed in rest if listed.bins)
        if run is None:
            return older
        held = np.zeros(self.bins, dtype=np.bool_)
        for batch in batches:
            held |= np.diff(bin_offsets(hash_column(batch), self.bins)) > 0
        return (Listed(run, BinSet.from_mask(held)), *older)
