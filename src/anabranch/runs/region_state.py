"""One operator's state in the bins of one owner: look up, write, scan."""

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
from anabranch.runs.blobs import with_blobs, write_blobs
from anabranch.runs.changes import Changed, Rows, fit, identity, sorted_order, to_rows
from anabranch.runs.compaction import (
    LIMITS,
    CompactionLimits,
    average_budget,
    choose_depths,
    default_budget,
)
from anabranch.runs.entries import Entries, entries_of_keys
from anabranch.runs.expiry import clock_of
from anabranch.runs.keys import Index, one_batch, to_mask
from anabranch.runs.rows import Held, lookup
from anabranch.runs.run_file import Create, write_run
from anabranch.runs.run_stack import StackedRuns
from anabranch.runs.sorted_rows import hash_column
from anabranch.runs.state_files import InStore, StateFiles

NONE = BinSet()


@dataclass(frozen=True, slots=True, eq=False)
class StateChange:
    """What a write did, for the commit.

    ``runs`` is the new list of the owned bins (``run_list.replace`` puts it into the operator's),
    ``run`` the file that was written, None when nothing was left to keep. ``live`` is the number
    of keys per bin, of entries where the layout has sub-keys; bins of others are as they were.
    What has expired counts until it is overwritten, forgotten or merged away, so this number may
    depend on when bins were merged. ``compacted_rows`` and ``compacted_bytes`` are what was read of
    older runs, ``compaction_seconds`` how long that took without writing the result.
    """

    run: RunInfo | None
    runs: RunList
    live: Index
    changed_rows: int
    compacted_rows: int
    compacted_bytes: int
    compaction_seconds: float


class RegionState:
    """One operator's state in the bins of one owner, at one step.

    ``runs`` is the operator's whole list, not only the owner's part: how much of a file others
    still need decides whether it is worth rewriting. Runs are opened when they are first needed.
    The object is a snapshot: a write leaves it as it was and returns what is new.

    Where rows expire, every call needs the clock of the step, ``now_ns``. It must not go back from
    step to step: what was merged away as expired does not return.
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

        ``files`` is how runs and blobs are read and made: in the store ``root``, unless told
        otherwise.
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
        self._files: StateFiles = InStore(root) if files is None else files
        self._held = StackedRuns(operator, layout, runs, self._files, bins, owned)

    def lookup(
        self, hashes: Hashes, keys: Rows, now_ns: int | None = None
    ) -> tuple[Mask, pa.RecordBatch]:
        """Which keys are held, and their values, NULL where not held.

        The keys asked for are sorted by hash, unique and in owned bins.
        """
        held = self.find(hashes, keys, now_ns)
        return held.found, held.values

    def find(self, hashes: Hashes, keys: Rows, now_ns: int | None = None) -> Held:
        """The same, with the expiry of each row and what has expired and is still counted."""
        return self._with_blobs(self._find(hashes, one_batch(keys), now_ns))

    def entries(self, hashes: Hashes, keys: Rows, now_ns: int | None = None) -> Entries:
        """All entries that keys hold, in state with sub-keys; the keys as in ``lookup``."""
        self._check_owned(hashes)
        layout, now_ns = self.layout, clock_of(self.layout, now_ns)
        offsets, rows = entries_of_keys(
            layout, self._held.counted, self.bins, hashes, one_batch(keys), now_ns
        )
        rows = self._filled(rows)
        return Entries(layout, rows.select(range(1 + len(layout.keys), rows.num_columns)), offsets)

    def entries_of(
        self, hashes: Hashes, keys: Rows, subkeys: Rows, now_ns: int | None = None
    ) -> Held:
        """Single entries: those of these keys with these sub-keys, row by row.

        They are sorted by hash, unique and in owned bins.
        """
        return self._with_blobs(self._find(hashes, identity(keys, subkeys), now_ns))

    def write(
        self,
        changed: Changed,
        name: str,
        *,
        found: Mask | None = None,
        budget: int | None = None,
        create: Create | None = None,
        now_ns: int | None = None,
        still: BinSet = NONE,
        bursts: bool = True,
    ) -> StateChange | None:
        """Keep what changed and merge what is due, in one new file of this name; or do nothing.

        ``found`` says which of the keys (or entries) were held before, if the caller knows; where
        rows expire that is ``Held.present``, since those that have expired are still counted.
        Forgetting a key that is not held leaves no trace. ``budget`` is the number of rows that
        compaction may read. A write without changed rows still merges what is due. Large values
        go to files of their own, if the layout has blobs, whose names begin with ``name``. Bins
        that are ``still`` are not merged, unless they would have too many runs: somebody is
        copying them, and a merge would make all of it new. Without ``bursts`` it only keeps up:
        what comes due at once waits, where the step has something else to spend time on.
        """
        create = self._files.create if create is None else create
        now_ns, stack = clock_of(self.layout, now_ns), self._held.stack
        delta, live = self._delta(changed, found, now_ns, name, create)
        offsets = bin_offsets(hash_column(delta), self.bins)
        if budget is None:
            budget_of = default_budget if bursts else average_budget
            budget = budget_of(delta.num_rows, int(stack.rows.sum()), self._limits)
        depths = choose_depths(
            stack,
            np.diff(offsets),
            delta.nbytes,
            live if now_ns is None else live - self._held.expired(now_ns),
            budget,
            self._limits,
        )
        depths[still.mask(self.bins) & (stack.heights < self._limits.run_limit)] = 0
        if self.layout.blobs:
            depths = np.maximum(depths, self._held.dead_blobs(delta, now_ns))
        absorbed = stack.absorbed(depths)
        if not delta.num_rows and not absorbed.any():
            return None
        started = time.perf_counter()
        parts = list(self._held.compacted(delta, offsets, depths, now_ns))
        seconds = time.perf_counter() - started if absorbed.any() else 0.0
        batches = [part.rows for part in parts if part.rows.num_rows]
        run = None
        if batches:
            run = write_run(
                self._root, name, self.operator, self.layout, batches, self.bins, create=create
            )
        return StateChange(
            run,
            self._list_after(run, batches, absorbed),
            sum((-part.died for part in parts if part.died is not None), start=live),
            delta.num_rows,
            int(stack.rows[absorbed].sum()),
            int(self._held.bin_bytes(absorbed).sum()),
            seconds,
        )

    def scan(self, now_ns: int | None = None) -> pa.Table:
        """All live rows, sorted: the columns of the layout but for blob and tombstone."""
        batches = [self._filled(rows) for rows in self._live(self.owned, now_ns)]
        nothing = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        return pa.Table.from_batches(batches, schema=self._filled(nothing).schema)

    def keys(self, now_ns: int | None, bins: BinSet) -> pa.Table:
        """Hash and key of all live rows in some of the owned bins, sorted; a key may come often."""
        columns = range(1 + len(self.layout.keys))
        schema = pa.schema([self.layout.schema.field(place) for place in columns])
        batches = [rows.select(columns) for rows in self._live(bins, now_ns)]
        return pa.Table.from_batches(batches, schema=schema)

    def bytes_per_bin(self) -> Index:
        """The bytes that each owned bin has in all its runs, dead rows included, and in blobs."""
        return self._held.bin_bytes(self._held.stack.listed) + self._held.blob_bytes()

    def _live(self, bins: BinSet, now_ns: int | None) -> Iterator[pa.RecordBatch]:
        """The live rows of some bins, a few bins at a time."""
        nothing = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        none_changed = np.zeros(self.bins + 1, dtype=np.int64)
        depths = np.where(bins.mask(self.bins), self._held.stack.heights, 0)
        clock = clock_of(self.layout, now_ns)
        for part in self._held.compacted(nothing, none_changed, depths, clock):
            yield part.rows

    def _check_owned(self, hashes: Hashes) -> None:
        check_hashes(hashes)
        strange = ~self.owned.mask(self.bins)[bin_of(hashes, self.bins)]
        if strange.any():
            number = bin_of(hashes[strange][:1], self.bins)[0]
            raise ValueError(f"R1: bin {number} is not owned here ({self.operator})")

    def _find(self, hashes: Hashes, keys: pa.RecordBatch, now_ns: int | None) -> Held:
        self._check_owned(hashes)
        now_ns = clock_of(self.layout, now_ns)
        return lookup(self.layout, self._held.counted, self.bins, hashes, keys, now_ns)

    def _with_blobs(self, held: Held) -> Held:
        if held.blob is None or held.blob.null_count == len(held.blob):
            return held
        return replace(held, values=with_blobs(self._files, held.values, held.blob))

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """State rows with what their blobs hold, without the columns blob and tombstone."""
        layout = self.layout
        last = layout.blob_column if layout.blobs else layout.tombstone_column
        shown = rows.select(range(last))
        if not layout.blobs or rows.column(last).null_count == rows.num_rows:
            return shown
        columns = list(shown.columns)
        values = with_blobs(self._files, rows.select(layout.value_columns), rows.column(last))
        for place, column in zip(layout.value_columns, values.columns, strict=True):
            columns[place] = column
        return pa.RecordBatch.from_arrays(columns, schema=shown.schema)

    def _delta(
        self,
        changed: Changed,
        found: Mask | None,
        now_ns: int | None,
        name: str,
        create: Create,
    ) -> tuple[pa.RecordBatch, Index]:
        """The rows that the changes add, and each bin's live keys after them."""
        if not len(changed.hashes):
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

    def _blobs(self, changed: Changed, name: str, create: Create) -> pa.Array | None:
        columns = fit("value", one_batch(changed.values), self.layout.values)
        values = pa.RecordBatch.from_arrays(columns, schema=self.layout.values)
        return write_blobs(self._root, name, values, changed.tombstone, create)

    def _list_after(
        self, run: RunInfo | None, batches: Sequence[pa.RecordBatch], absorbed: Mask
    ) -> RunList:
        kept = (
            Listed(listed.run, listed.bins - BinSet.from_mask(mask))
            for listed, mask in zip(self._held.listed, absorbed, strict=True)
        )
        older = tuple(listed for listed in kept if listed.bins)
        if run is None:
            return older
        held = np.zeros(self.bins, dtype=np.bool_)
        for batch in batches:
            held |= np.diff(bin_offsets(hash_column(batch), self.bins)) > 0
        return (Listed(run, BinSet.from_mask(held)), *older)
