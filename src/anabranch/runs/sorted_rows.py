"""State rows sorted by (hash, key, sub-key), in batches, and how one finds keys in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes
from anabranch.records.layout import Layout
from anabranch.runs.flat_columns import Flat, FlatColumn, Spread, flat_columns
from anabranch.runs.hash_index import Signposts, make_signposts
from anabranch.runs.keys import Index, comes_before, same_keys

#: From how many hashes on a search is worth signposts: to make them reads all hashes once.
MANY = 1024


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
    batches lie in a mapped file, only the pages that a search touches are read, but for the
    first search for many hashes, which reads all hashes.
    """

    __slots__ = (
        "_firsts",
        "_flat",
        "_hashes",
        "_signposts",
        "_words",
        "batches",
        "schema",
        "starts",
    )

    def __init__(
        self,
        schema: pa.Schema,
        batches: Sequence[pa.RecordBatch],
        whole: pa.Buffer | None = None,
    ) -> None:
        """Keep the batches that have rows; ``whole`` is the buffer in which they lie, if one."""
        self.schema = schema
        self.batches = tuple(batch for batch in batches if batch.num_rows)
        lengths = [batch.num_rows for batch in self.batches]
        self.starts: Index = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._hashes = tuple(hash_column(batch) for batch in self.batches)
        self._firsts = np.array([column[0] for column in self._hashes], dtype=np.uint64)
        self._flat: tuple[Flat | None, ...] = (None,) * len(schema)
        if whole is not None:
            self._flat = flat_columns(schema, self.batches, self.starts, whole)
        self._signposts: Signposts | None = None
        # None where signposts cannot be.
        hashes = self._flat[0]
        self._words = hashes if isinstance(hashes, FlatColumn) else None

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
        columns = range(len(self.schema)) if columns is None else columns
        edges = np.searchsorted(positions, self.starts)
        spread = Spread(positions, np.diff(edges))
        slow = [column for column in columns if self._flat[column] is None]
        taken = iter(self._take_by_batch(spread, edges, slow).columns if slow else ())
        arrays = []
        for column in columns:
            flat = self._flat[column]
            arrays.append(next(taken) if flat is None else flat.take(spread))
        return pa.RecordBatch.from_arrays(arrays, schema=self._shown(columns))

    def _shown(self, columns: Sequence[int]) -> pa.Schema:
        return pa.schema([self.schema.field(column) for column in columns])

    def _take_by_batch(
        self, spread: Spread, edges: Index, columns: Sequence[int]
    ) -> pa.RecordBatch:
        local = pa.array(spread.shifted(-self.starts[:-1]))
        pieces = [
            self.batches[chunk].select(columns).take(local.slice(start, stop - start))
            for chunk, start, stop in _chunks(edges)
        ]
        return concat_rows(self._shown(columns), pieces)

    def match(
        self, layout: Layout, hashes: Hashes, keys: pa.RecordBatch, asked: Index
    ) -> tuple[Index, Index]:
        """Which of the keys asked for (places in ``hashes`` and ``keys``) are here, and where.

        The places are ascending and so are the hashes at them. Those returned need not be, but
        the positions are.
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
            # Another key of the same hash stands there: look one row further.
            asked, positions = self._further(hashes, asked[~same], positions[~same])
        if len(found) <= 2:
            return places[-1], found[-1]
        place, position = np.concatenate(places), np.concatenate(found)
        order = np.argsort(position)
        return place[order], position[order]

    def _further(self, hashes: Hashes, asked: Index, positions: Index) -> tuple[Index, Index]:
        """Those of these places whose hash also stands one row further, and these rows."""
        inside = positions + 1 < len(self)
        asked, positions = asked[inside], positions[inside] + 1
        alike = hash_column(self.take(positions, [0])) == hashes[asked]
        return asked[alike], positions[alike]

    def match_entries(
        self, layout: Layout, hashes: Hashes, entries: pa.RecordBatch, asked: Index
    ) -> tuple[Index, Index]:
        """Which of the entries asked for are here, and where, as ``match`` does for keys.

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
        asked, low, wanted = asked[inside], low[inside], wanted.filter(pa.array(inside))
        same = same_keys(wanted.columns, self.take(low, columns).columns, len(asked))
        return asked[same], low[same]

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

    def _find(self, hashes: Hashes) -> tuple[Index, Index]:
        """Which of these ascending hashes are here, and the first position of each."""
        edges = np.append(np.searchsorted(hashes, self._firsts), len(hashes))
        signposts = self._marked(len(hashes))
        if signposts is not None and self._words is not None:
            found, words = signposts.find(hashes)
            counts = np.diff(np.searchsorted(found, edges))
            return found, words - np.repeat(self._words.shifts, counts)
        positions = np.zeros(len(hashes), dtype=np.int64)
        hit = np.zeros(len(hashes), dtype=np.bool_)
        for chunk, start, stop in _chunks(edges):
            held, wanted = self._hashes[chunk], hashes[start:stop]
            local = np.searchsorted(held, wanted)
            positions[start:stop] = local + self.starts[chunk]
            hit[start:stop] = held[np.minimum(local, len(held) - 1)] == wanted
        found = np.flatnonzero(hit)
        return found, positions[found]

    def _marked(self, asked: int) -> Signposts | None:
        """The signposts, made when they are first worth it; None if they are not or cannot be."""
        if self._signposts is None and self._words is not None and asked >= MANY:
            places = (self._words.shifts + self.starts[:-1]).tolist()
            self._signposts = make_signposts(self._hashes, self._words.words, places)
            if self._signposts is None:
                self._words = None
        return self._signposts


def _chunks(edges: Index) -> Iterator[tuple[int, int, int]]:
    """The chunks to which anything falls: (chunk, start, stop)."""
    for chunk, (start, stop) in enumerate(pairwise(edges.tolist())):
        if start < stop:
            yield chunk, start, stop
