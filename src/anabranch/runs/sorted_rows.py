"""Batches of state rows sorted by (hash, key, sub-key), and searches for keys in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes
from anabranch.records.layout import Layout
from anabranch.runs.flat_columns import Flat, FlatColumn, RowSelection, flat_columns
from anabranch.runs.hash_index import HashIndex, build_hash_index
from anabranch.runs.keys import Index, comes_before, same_keys

#: The number of hashes from which a search is worth an index: building it reads all hashes once.
MANY = 1024


def hash_column(batch: pa.RecordBatch) -> Hashes:
    """The hashes of state rows, without a copy."""
    hashes: Hashes = batch.column(0).to_numpy()
    return hashes


def concat_rows(schema: pa.Schema, pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches into one; a single batch is not copied."""
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


class SortedRows:
    """Immutable state rows sorted by (hash, key, sub-key), numbered through all their batches.

    Rows of one hash lie in one batch: a batch ends where a bin does. Nothing is copied. If the
    batches lie in a mapped file, a search reads only the pages it touches, except that the first
    search for many hashes reads all hashes.
    """

    __slots__ = ("_firsts", "_flat", "_hashes", "_index", "_words", "batches", "schema", "starts")

    def __init__(
        self, schema: pa.Schema, batches: Sequence[pa.RecordBatch], whole: pa.Buffer | None = None
    ) -> None:
        """Take the batches that have rows; ``whole`` is the buffer they lie in, if it is one."""
        self.schema = schema
        self.batches = tuple(batch for batch in batches if batch.num_rows)
        lengths = [batch.num_rows for batch in self.batches]
        self.starts: Index = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._hashes = tuple(hash_column(batch) for batch in self.batches)
        self._firsts = np.array([column[0] for column in self._hashes], dtype=np.uint64)
        self._flat: tuple[Flat | None, ...] = (None,) * len(schema)
        if whole is not None:
            self._flat = flat_columns(schema, self.batches, self.starts, whole)
        self._index: HashIndex | None = None
        # None if the hashes cannot be indexed.
        hashes = self._flat[0]
        self._words = hashes if isinstance(hashes, FlatColumn) else None

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def slice(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows from ``start`` up to ``stop``, without a copy."""
        chunk = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            begin, end = int(self.starts[chunk]), int(self.starts[chunk + 1])
            piece = min(stop, end) - start
            yield self.batches[chunk].slice(start - begin, piece)
            start += piece
            chunk += 1

    def take(self, positions: Index, columns: Sequence[int] | None = None) -> pa.RecordBatch:
        """The rows at these positions, which must not descend; all columns, or some."""
        columns = range(len(self.schema)) if columns is None else columns
        edges = np.searchsorted(positions, self.starts)
        selection = RowSelection(positions, np.diff(edges))
        slow = [column for column in columns if self._flat[column] is None]
        taken = iter(self._take_by_batch(selection, edges, slow).columns if slow else ())
        arrays = []
        for column in columns:
            flat = self._flat[column]
            arrays.append(next(taken) if flat is None else flat.take(selection))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema_of(columns))

    def _schema_of(self, columns: Sequence[int]) -> pa.Schema:
        return pa.schema([self.schema.field(column) for column in columns])

    def _take_by_batch(
        self, selection: RowSelection, edges: Index, columns: Sequence[int]
    ) -> pa.RecordBatch:
        local = pa.array(selection.shifted(-self.starts[:-1]))
        pieces = [
            self.batches[chunk].select(columns).take(local.slice(start, stop - start))
            for chunk, start, stop in _chunks(edges)
        ]
        return concat_rows(self._schema_of(columns), pieces)

    def match(
        self, layout: Layout, hashes: Hashes, keys: pa.RecordBatch, asked: Index
    ) -> tuple[Index, Index]:
        """Find the keys at the places ``asked`` in ``hashes`` and ``keys``.

        Returns the places of the keys found and their positions here. The places asked for and
        their hashes must ascend. The positions returned ascend; the places need not.
        """
        hit, positions = self._find(hashes if len(asked) == len(hashes) else hashes[asked])
        asked = asked[hit]
        places, found = [asked[:0]], [positions[:0]]
        while len(asked):
            held = self.take(positions, layout.key_columns)
            wanted = keys if len(asked) == keys.num_rows else keys.take(pa.array(asked))
            same = same_keys(wanted.columns, held.columns, len(asked))
            if same.all():
                places.append(asked)
                found.append(positions)
                break
            places.append(asked[same])
            found.append(positions[same])
            # A row has another key with the same hash: try the next row.
            asked, positions = self._further(hashes, asked[~same], positions[~same])
        if len(found) <= 2:
            return places[-1], found[-1]
        place, position = np.concatenate(places), np.concatenate(found)
        order = np.argsort(position)
        return place[order], position[order]

    def _further(self, hashes: Hashes, asked: Index, positions: Index) -> tuple[Index, Index]:
        """The places whose hash also occurs in the next row, and those rows."""
        inside = positions + 1 < len(self)
        asked, positions = asked[inside], positions[inside] + 1
        alike = hash_column(self.take(positions, [0])) == hashes[asked]
        return asked[alike], positions[alike]

    def match_entries(
        self, layout: Layout, hashes: Hashes, entries: pa.RecordBatch, asked: Index
    ) -> tuple[Index, Index]:
        """Find entries as ``match`` finds keys; ``entries`` has key and sub-key columns.

        A key may have any number of entries, so this is a binary search, for all at the same time.
        """
        columns = layout.identity_columns
        low, high = self.ranges(hashes[asked])
        asked, low, high = (part[low < high] for part in (asked, low, high))
        ends = high.copy()
        wanted = entries.take(pa.array(asked))
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            held = self.take(middle, columns)
            sought = wanted.take(pa.array(open_))
            before = comes_before(held.columns, sought.columns, len(open_))
            low[open_[before]] = middle[before] + 1
            high[open_[~before]] = middle[~before]
        inside = low < ends
        asked, low, wanted = asked[inside], low[inside], wanted.filter(pa.array(inside))
        same = same_keys(wanted.columns, self.take(low, columns).columns, len(asked))
        return asked[same], low[same]

    def entries(
        self, layout: Layout, hashes: Hashes, keys: pa.RecordBatch, asked: Index
    ) -> tuple[Index, pa.RecordBatch]:
        """All rows of the keys at the places ``asked``, and the place of each row's key."""
        start, stop = self.ranges(hashes[asked])
        hit = start < stop
        asked, start, stop = asked[hit], start[hit], stop[hit]
        if not len(asked):
            return asked, concat_rows(self.schema, [])
        counts = stop - start
        ends = np.cumsum(counts)
        places = np.repeat(asked, counts)
        rows = self.take(np.arange(ends[-1]) + np.repeat(stop - ends, counts))
        # Unless hashes collide, a hash has one key: compare its first and last row.
        held, wanted = rows.select(layout.key_columns), keys.take(pa.array(asked))
        same = np.ones(len(asked), dtype=np.bool_)
        for edge in (ends - counts, ends - 1):
            at_edge = held.take(pa.array(edge))
            same &= same_keys(at_edge.columns, wanted.columns, len(asked))
        if same.all():
            return places, rows
        mixed = np.flatnonzero(~np.repeat(same, counts))
        inner, outer = held.take(pa.array(mixed)), keys.take(pa.array(places[mixed]))
        kept = np.ones(len(places), dtype=np.bool_)
        kept[mixed] = same_keys(inner.columns, outer.columns, len(mixed))
        return places[kept], rows.filter(pa.array(kept))

    def ranges(self, hashes: Hashes) -> tuple[Index, Index]:
        """The start and stop positions of each of these ascending hashes."""
        start = np.zeros(len(hashes), dtype=np.int64)
        stop = np.zeros(len(hashes), dtype=np.int64)
        edges = np.append(np.searchsorted(hashes, self._firsts), len(hashes))
        for chunk, first, last in _chunks(edges):
            column, wanted = self._hashes[chunk], hashes[first:last]
            start[first:last] = np.searchsorted(column, wanted) + self.starts[chunk]
            stop[first:last] = np.searchsorted(column, wanted, "right") + self.starts[chunk]
        return start, stop

    def _find(self, hashes: Hashes) -> tuple[Index, Index]:
        """Which of these ascending hashes are here, and the first position of each."""
        index = self._hash_index(len(hashes))
        if index is not None and self._words is not None:
            found, words = index.find(hashes)
            edges = np.append(np.searchsorted(hashes, self._firsts), len(hashes))
            counts = np.diff(np.searchsorted(found, edges))
            return found, words - np.repeat(self._words.shifts, counts)
        start, stop = self.ranges(hashes)
        found = np.flatnonzero(start < stop)
        return found, start[found]

    def _hash_index(self, asked: int) -> HashIndex | None:
        """The index, built on the first search that is worth it; None before, or if impossible."""
        if self._index is None and self._words is not None and asked >= MANY:
            places = (self._words.shifts + self.starts[:-1]).tolist()
            self._index = build_hash_index(self._hashes, self._words.words, places)
            if self._index is None:
                self._words = None
        return self._index


def _chunks(edges: Index) -> Iterator[tuple[int, int, int]]:
    """The chunks that are not empty, as (chunk, start, stop)."""
    for chunk, (start, stop) in enumerate(pairwise(edges.tolist())):
        if start < stop:
            yield chunk, start, stop
