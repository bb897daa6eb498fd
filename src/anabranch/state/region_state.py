"""One operator's state in the bins of one owner: look up, write, scan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.errors import ChangedDataflow
from anabranch.state.bins import BinSet, Hashes, Mask, bin_of, bin_offsets, check_hashes
from anabranch.state.changed import Changed, Rows, identity, sorted_order, to_rows
from anabranch.state.entries import Entries, entries_of_keys
from anabranch.state.expiry import bury_expired, clock_of
from anabranch.state.keys import Index, one_batch, to_mask
from anabranch.state.layout import Layout
from anabranch.state.merge_policy import LIMITS, Limits, Stack, choose_depths, default_budget
from anabranch.state.rows import Held, drop_tombstones, lookup, merge_rows
from anabranch.state.run_file import Create, Run, open_run, write_run
from anabranch.state.run_list import Listed, RunInfo, RunList, restrict
from anabranch.state.sorted_rows import SortedRows, hash_column

#: Bins are merged a few at a time, so that memory stays bounded however large the state is.
MERGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class StateChange:
    """What a write did, for the commit.

    ``runs`` is the new list of the owned bins (``run_list.replace`` puts it into the operator's),
    ``run`` the file that was written, None when nothing was left to keep. ``live`` is the number
    of keys per bin, of entries where the layout has sub-keys; bins of others are as they were.
    What has expired counts until it is overwritten, forgotten or merged away, so this number may
    depend on when bins were merged. ``merged_rows`` and ``merged_bytes`` are what was read of
    older runs, ``merge_seconds`` how long that took without writing the result.
    """

    run: RunInfo | None
    runs: RunList
    live: Index
    changed_rows: int
    merged_rows: int
    merged_bytes: int
    merge_seconds: float


class OperatorState:
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
        limits: Limits = LIMITS,
    ) -> None:
        """Take the state as a commit describes it; ``live`` has a number per bin."""
        self.operator = operator
        self.layout = layout
        self.bins = bins
        self.owned = owned
        self.live: Index = np.asarray(live, dtype=np.int64)
        if self.live.shape != (bins,):
            raise ValueError(f"live keys of {bins} bins expected, not {self.live.shape}")
        self._root = root
        self._limits = limits
        self._all = {listed.run.name: listed.bins for listed in runs}
        self._mine = restrict(runs, owned)

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
        return self._find(hashes, one_batch(keys), clock_of(self.layout, now_ns))

    def entries(self, hashes: Hashes, keys: Rows, now_ns: int | None = None) -> Entries:
        """All entries that keys hold, in state with sub-keys; the keys as in ``lookup``."""
        self._check_owned(hashes)
        now_ns = clock_of(self.layout, now_ns)
        offsets, rows = entries_of_keys(
            self.layout, self._counted, self.bins, hashes, one_batch(keys), now_ns
        )
        columns = self.layout.subkey_columns + self.layout.payload_columns
        return Entries(self.layout, rows.select(columns), offsets)

    def entries_of(
        self, hashes: Hashes, keys: Rows, subkeys: Rows, now_ns: int | None = None
    ) -> Held:
        """Single entries: those of these keys with these sub-keys, row by row.

        They are sorted by hash, unique and in owned bins.
        """
        return self._find(hashes, identity(keys, subkeys), clock_of(self.layout, now_ns))

    def write(
        self,
        changed: Changed,
        name: str,
        *,
        found: Mask | None = None,
        budget: int | None = None,
        create: Create | None = None,
        now_ns: int | None = None,
    ) -> StateChange | None:
        """Keep what changed and merge what is due, in one new file of this name; or do nothing.

        ``found`` says which of the keys (or entries) were held before, if the caller knows; where
        rows expire that is ``Held.present``, since those that have expired are still counted.
        Forgetting a key that is not held leaves no trace. ``budget`` is the number of rows that
        merging may read. A write without changed rows still merges what is due.
        """
        now_ns = clock_of(self.layout, now_ns)
        delta, live = self._delta(changed, found, now_ns)
        offsets = bin_offsets(hash_column(delta), self.bins)
        if budget is None:
            budget = default_budget(delta.num_rows, int(self._stack.rows.sum()), self._limits)
        depths = choose_depths(
            self._stack,
            np.diff(offsets),
            delta.nbytes,
            live if now_ns is None else live - self._expired(now_ns),
            budget,
            self._limits,
        )
        absorbed = self._stack.absorbed(depths)
        if not delta.num_rows and not absorbed.any():
            return None
        started = time.perf_counter()
        died = np.zeros(self.bins, dtype=np.int64)
        batches = list(self._merged(delta, offsets, depths, now_ns, died))
        merging = time.perf_counter() - started if absorbed.any() else 0.0
        run = None
        if batches:
            run = write_run(
                self._root, name, self.operator, self.layout, batches, self.bins, create=create
            )
        return StateChange(
            run,
            self._list_after(run, batches, absorbed),
            live - died,
            delta.num_rows,
            *self._read(absorbed),
            merging,
        )

    def scan(self, now_ns: int | None = None) -> pa.Table:
        """All live rows, sorted: the columns of the layout without the tombstone."""
        now_ns = clock_of(self.layout, now_ns)
        died = np.zeros(self.bins, dtype=np.int64)
        nothing = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        none_changed = np.zeros(self.bins + 1, dtype=np.int64)
        batches = list(self._merged(nothing, none_changed, self._stack.heights, now_ns, died))
        table = pa.Table.from_batches(batches, schema=self.layout.schema)
        return table.remove_column(self.layout.tombstone_column)

    def bytes_per_bin(self) -> Index:
        """The bytes that each owned bin has in all its runs, dead rows included."""
        return self._bin_bytes(self._stack.listed)

    @cached_property
    def _runs(self) -> tuple[Run, ...]:
        """The runs of the owned bins, newest first, opened."""
        opened = tuple(open_run(self._root, listed.run) for listed in self._mine)
        for run in opened:
            if run.rows.schema != self.layout.schema or run.bins != self.bins:
                raise ChangedDataflow(
                    f"The state of {self.operator!r} was kept with other columns or bins",
                    where=run.info.name,
                    do="Run the dataflow that wrote it, or use another directory.",
                )
        return opened

    @property
    def _counted(self) -> list[tuple[SortedRows, Mask]]:
        """The rows of each run and the bins it counts for."""
        return [(run.rows, mask) for run, mask in zip(self._runs, self._stack.listed, strict=True)]

    @cached_property
    def _stack(self) -> Stack:
        """The runs of the owned bins as the numbers that the merge policy sees."""
        shape = (len(self._mine), self.bins)
        rows = np.zeros(shape, dtype=np.int64)
        shares = np.ones(shape[0])
        for place, (run, listed) in enumerate(zip(self._runs, self._mine, strict=True)):
            rows[place] = np.where(listed.bins.mask(self.bins), run.bin_rows, 0)
            anybody = self._all[run.info.name].mask(self.bins)
            shares[place] = run.bin_rows[anybody].sum() / run.info.rows
        return Stack(rows, shares, np.array([run.info.bytes for run in self._runs], dtype=np.int64))

    def _find(self, hashes: Hashes, keys: pa.RecordBatch, now_ns: int | None) -> Held:
        self._check_owned(hashes)
        return lookup(self.layout, self._counted, self.bins, hashes, keys, now_ns)

    def _expired(self, now_ns: int) -> Index:
        """How many rows each bin has that expired, those that a newer one hides among them.

        Those are dead twice in the eyes of the merge policy, which comes a little early then.
        """
        numbers = np.zeros(self.bins, dtype=np.int64)
        for run, mask in zip(self._runs, self._stack.listed, strict=True):
            if run.expiry is not None:
                numbers += np.where(mask, run.expiry.expired(now_ns), 0)
        return numbers

    def _check_owned(self, hashes: Hashes) -> None:
        check_hashes(hashes)
        strange = ~self.owned.mask(self.bins)[bin_of(hashes, self.bins)]
        if strange.any():
            number = bin_of(hashes[strange][:1], self.bins)[0]
            raise ValueError(f"R1: bin {number} is not owned here ({self.operator})")

    def _delta(
        self, changed: Changed, found: Mask | None, now_ns: int | None
    ) -> tuple[pa.RecordBatch, Index]:
        """The rows that the changes add, and each bin's live keys after them."""
        self._check_owned(changed.hashes)
        order = sorted_order(changed)
        rows = to_rows(self.layout, changed, order)
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

    def _merged(
        self,
        delta: pa.RecordBatch,
        offsets: Index,
        depths: Index,
        now_ns: int | None,
        died: Index,
    ) -> Iterator[pa.RecordBatch]:
        """The changes merged with what is absorbed: batches in order, each with bins of its own.

        ``offsets`` is where each bin begins in the changes. Tombstones go where a bin is merged
        down to its oldest run. The newest row of a key that has expired becomes a tombstone before
        that, and is counted in ``died``, bin by bin.
        """
        absorbed = self._stack.absorbed(depths)
        at_bottom = depths >= self._stack.heights
        share = delta.nbytes / max(delta.num_rows, 1)
        sizes = np.diff(offsets) * share + self._bin_bytes(absorbed)
        for first, last in _spans(sizes):
            span = np.zeros(self.bins, dtype=np.bool_)
            span[first:last] = True
            start, stop = int(offsets[first]), int(offsets[last])
            parts = [delta.slice(start, stop - start)]
            for run, mask in zip(self._runs, absorbed, strict=True):
                parts.extend(run.select(mask & span))
            rows = merge_rows(self.layout, parts)
            if self.layout.expires:
                rows, expired = bury_expired(self.layout, rows, now_ns)
                numbers = bin_of(hash_column(rows)[expired], self.bins)
                died += np.bincount(numbers, minlength=self.bins)
            rows = drop_tombstones(self.layout, rows, at_bottom, self.bins)
            if rows.num_rows:
                yield rows

    def _list_after(
        self, run: RunInfo | None, batches: Sequence[pa.RecordBatch], absorbed: Mask
    ) -> RunList:
        kept = (
            Listed(listed.run, listed.bins - BinSet.from_mask(mask))
            for listed, mask in zip(self._mine, absorbed, strict=True)
        )
        older = tuple(listed for listed in kept if listed.bins)
        if run is None:
            return older
        held = np.zeros(self.bins, dtype=np.bool_)
        for batch in batches:
            held |= np.diff(bin_offsets(hash_column(batch), self.bins)) > 0
        return (Listed(run, BinSet.from_mask(held)), *older)

    def _read(self, absorbed: Mask) -> tuple[int, int]:
        """How many rows and bytes of older runs a merge reads."""
        rows = int(self._stack.rows[absorbed].sum())
        return rows, int(self._bin_bytes(absorbed).sum())

    def _bin_bytes(self, chosen: Mask) -> Index:
        sizes = np.zeros(self.bins, dtype=np.int64)
        for run, mask in zip(self._runs, chosen, strict=True):
            sizes += np.where(mask, run.bin_bytes, 0)
        return sizes


def _spans(sizes: Index) -> Iterator[tuple[int, int]]:
    """Ranges of bins that are merged together: whole bins, as many as fit in memory well."""
    first, held = 0, 0.0
    for last, size in enumerate(sizes.tolist(), start=1):
        held += size
        if held >= MERGE_BYTES:
            yield first, last
            first, held = last, 0.0
    if held:
        yield first, len(sizes)
