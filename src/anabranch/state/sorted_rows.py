"""State rows sorted by (hash, key, sub-key), in batches, and how one finds keys in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from anabranch.state.bins import Hashes, Mask
from anabranch.state.keys import Index, comes_before, same_keys
from anabranch.state.layout import Layout


def hash_column(batch: pa.RecordBatch) -> Hashes:
    """The hashes of state rows, without a copy."""
    hashes: Hashes = batch.column(0).to_numpy()
    return hashes


def concat_rows(schema: pa.Schema, pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches one after the other as one, which is copied only if there are several."""
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


class SortedRows:
    """Immutable state rows sorted by (hash, key, sub-key), numbered through all their batches.

    Rows of one hash lie in one batch: a batch ends where a bin does. Nothing is copied; when the
    batches lie in a mapped file, only the pages that a search touches are read.
    """

    __slots__ = ("_firsts", "_hashes", "batches", "schema", "starts")

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep the batches that have rows."""
        self.schema = schema
        self.batches = tuple(batch for batch in batches if batch.num_rows)
        lengths = [batch.num_rows for batch in self.batches]
        self.starts: Index = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._hashes = tuple(hash_column(batch) for batch in self.batches)
        self._firsts = np.array([column[0] for column in self._hashes], dtype=np.uint64)

    def __len__(self) -> int:
        """How many rows."""
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
        """The rows at these positions, which do not descend; all columns, or some."""
        edges = np.searchsorted(positions, self.starts)
        local = pa.array(positions - np.repeat(self.starts[:-1], np.diff(edges)))
        schema, pieces = self.schema, []
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        for chunk, start, stop in _chunks(edges):
            batch = self.batches[chunk]
            shown = batch if columns is None else batch.select(columns)
            pieces.append(shown.take(local.slice(start, stop - start)))
        return concat_rows(schema, pieces)

    def match(
        self, layout: Layout, hashes: Hashes, keys: pa.RecordBatch, asked: Index
    ) -> tuple[Index, pa.RecordBatch]:
        """Which of the keys asked for (places in ``hashes`` and ``keys``) are here, and their rows.

        The places are ascending and so are the hashes at them. The places returned need not be.
        """
        positions, hit = self._find(hashes[asked])
        asked, positions = asked[hit], positions[hit]
        places, pieces = [asked[:0]], []
        while len(asked):
            rows = self.take(positions)
            wanted = keys if len(asked) == keys.num_rows else keys.take(pa.array(asked))
            held = [rows.column(number) for number in layout.key_columns]
            alike = hash_column(rows) == hashes[asked]
            same = alike & same_keys(wanted.columns, held, len(asked))
            places.append(asked[same])
            pieces.append(rows if same.all() else rows.filter(pa.array(same)))
            # Another key of the same hash stood there: look one row further.
            further = alike & ~same & (positions + 1 < len(self))
            asked, positions = asked[further], positions[further] + 1
        return np.concatenate(places), concat_rows(self.schema, pieces)

    def match_entries(
        self, layout: Layout, hashes: Hashes, entries: pa.RecordBatch, asked: Index
    ) -> tuple[Index, pa.RecordBatch]:
        """Which of the entries asked for are here, and their rows, as ``match`` does for keys.

        ``entries`` has key and sub-key columns. A key may have any number of entries, so they are
        not tried one after the other but searched by halves, all at the same time.
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
        asked, wanted, rows = asked[inside], wanted.filter(pa.array(inside)), self.take(low[inside])
        same = same_keys(wanted.columns, rows.select(columns).columns, len(asked))
        return asked[same], rows.filter(pa.array(same))

    def entries(
        self, layout: Layout, hashes: Hashes, keys: pa.RecordBatch, asked: Index
    ) -> tuple[Index, pa.RecordBatch]:
        """All rows of the keys asked for, and for each row its key's place in ``keys``."""
        start, stop = self.ranges(hashes[asked])
        hit = start < stop
        asked, start, stop = asked[hit], start[hit], stop[hit]
        if not len(asked):
            return asked, concat_rows(self.schema, [])
        counts = stop - start
        ends = np.cumsum(counts)
        places = np.repeat(asked, counts)
        rows = self.take(np.arange(ends[-1]) + np.repeat(stop - ends, counts))
        # A hash has one key, but for collisions: its first and last row tell.
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
        """The positions from which and up to which each of these ascending hashes stands."""
        start = np.zeros(len(hashes), dtype=np.int64)
        stop = np.zeros(len(hashes), dtype=np.int64)
        edges = np.append(np.searchsorted(hashes, self._firsts), len(hashes))
        for chunk, first, last in _chunks(edges):
            column, wanted = self._hashes[chunk], hashes[first:last]
            start[first:last] = np.searchsorted(column, wanted) + self.starts[chunk]
            stop[first:last] = np.searchsorted(column, wanted, "right") + self.starts[chunk]
        return start, stop

    def _find(self, hashes: Hashes) -> tuple[Index, Mask]:
        """The first position with each of these ascending hashes, and whether there is one."""
        positions = np.zeros(len(hashes), dtype=np.int64)
        hit = np.zeros(len(hashes), dtype=np.bool_)
        edges = np.append(np.searchsorted(hashes, self._firsts), len(hashes))
        for chunk, start, stop in _chunks(edges):
            column, wanted = self._hashes[chunk], hashes[start:stop]
            local = np.searchsorted(column, wanted)
            positions[start:stop] = local + self.starts[chunk]
            hit[start:stop] = column[np.minimum(local, len(column) - 1)] == wanted
        return positions, hit


def _chunks(edges: Index) -> Iterator[tuple[int, int, int]]:
    """The chunks to which anything falls: (chunk, start, stop)."""
    for chunk, (start, stop) in enumerate(pairwise(edges.tolist())):
        if start < stop:
            yield chunk, start, stop
