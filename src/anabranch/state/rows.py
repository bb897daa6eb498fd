"""Rows of state as sorted columns: grouping, looking up and merging, a column at a time.

Everything is exact when hashes collide: full keys are compared wherever hashes are equal. Rows
are ordered by (hash, key); the order of keys matters only where hashes are equal and is then that
of ``keys.order_by_key``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.state.bins import Hashes, Mask, bin_of, check_hashes
from anabranch.state.keys import Index, one_batch, order_by_key, same_keys, to_mask
from anabranch.state.layout import Layout, check_key_types
from anabranch.state.sorted_rows import SortedRows, concat_rows, hash_column


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The rows of a batch by key.

    ``order`` lists the rows by (hash, key), equal keys in the order of the batch; ``starts`` is
    where each group begins in it; ``group_of_row`` is the group of each row of the batch.
    ``hashes`` and ``keys`` have one row per group, sorted and unique, fit for a look-up.
    """

    order: Index
    starts: Index
    group_of_row: Index
    hashes: Hashes
    keys: pa.RecordBatch

    def __len__(self) -> int:
        """How many groups."""
        return len(self.starts)


def group_keys(hashes: Hashes, keys: pa.Table | pa.RecordBatch) -> Groups:
    """Group the rows of a batch, in any order, by key.

    >>> keys = pa.record_batch({"name": ["b", "a", "b"]})
    >>> groups = group_keys(np.array([7, 3, 7], dtype=np.uint64), keys)
    >>> groups.order.tolist(), groups.starts.tolist(), groups.group_of_row.tolist()
    ([1, 0, 2], [0, 1], [1, 0, 1])
    """
    check_hashes(hashes)
    check_key_types(keys.schema)
    keys = one_batch(keys)
    order, first = _ordered(hashes, keys)
    starts = np.flatnonzero(first)
    group_of_row = np.empty(len(order), dtype=np.int64)
    group_of_row[order] = np.cumsum(first) - 1
    leaders = order[starts]
    return Groups(order, starts, group_of_row, hashes[leaders], keys.take(pa.array(leaders)))


def is_ascending(hashes: Hashes) -> bool:
    """Whether each hash is larger than the one before: then the rows are sorted and unique."""
    return bool(np.all(hashes[1:] > hashes[:-1]))


def merge_rows(layout: Layout, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One sorted batch with the newest row of every key, tombstones included.

    ``parts`` are newest first. Each is sorted by hash; parts that hold the same key differ in age.
    """
    whole = concat_rows(layout.schema, parts)
    hashes = hash_column(whole)
    if is_ascending(hashes):
        return whole
    order, first = _ordered(hashes, whole.select(layout.key_columns))
    return whole.take(pa.array(order[first]))


def drop_tombstones(
    layout: Layout, batch: pa.RecordBatch, at_bottom: Mask, bins: int
) -> pa.RecordBatch:
    """The rows without the tombstones of those bins below which nothing older is listed."""
    dead = to_mask(batch.column(layout.tombstone_column))
    if not dead.any():
        return batch
    dead &= at_bottom[bin_of(hash_column(batch), bins)]
    return batch.filter(pa.array(~dead))


def lookup(
    layout: Layout,
    stack: Sequence[tuple[SortedRows, Mask]],
    bins: int,
    hashes: Hashes,
    keys: pa.RecordBatch,
) -> tuple[Mask, pa.RecordBatch]:
    """Which keys are held, and their values: a row per key asked for, NULL where not held.

    ``stack`` is newest first; each member has a truth value per bin that says for which bins it
    counts. The keys asked for are sorted by hash and unique.
    """
    place = np.zeros(len(hashes), dtype=np.int64)
    found = np.zeros(len(hashes), dtype=np.bool_)
    settled = np.zeros(len(hashes), dtype=np.bool_)
    numbers = bin_of(hashes, bins)
    pieces: list[pa.RecordBatch] = []
    taken = 0
    missing = np.arange(len(hashes))
    for rows, counts in stack:
        asked = missing if counts.all() else missing[counts[numbers[missing]]]
        matched, piece = rows.match(layout, hashes, keys, asked)
        if not len(matched):
            continue
        found[matched] = ~to_mask(piece.column(layout.tombstone_column))
        place[matched] = np.arange(taken, taken + len(matched))
        taken += len(matched)
        pieces.append(piece)
        settled[matched] = True
        missing = missing[~settled[missing]]
    return found, _values_at(layout, pieces, place, found)


def _values_at(
    layout: Layout, pieces: Sequence[pa.RecordBatch], place: Index, found: Mask
) -> pa.RecordBatch:
    if pieces:
        held = pa.concat_batches(pieces).select(layout.value_columns)
        columns = held.take(pa.array(place, mask=~found)).columns
    else:
        columns = [pa.nulls(len(place), column.type) for column in layout.values]
    fields = [pa.field(column.name, column.type) for column in layout.values]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _ordered(hashes: Hashes, keys: pa.RecordBatch) -> tuple[Index, Mask]:
    """The stable order by (hash, key), and in it which rows are the first of their key."""
    order = _order_by_hash(hashes)
    ordered = hashes[order]
    first, mixed = _first_of_key(ordered, keys, order)
    if mixed.any():
        places = np.flatnonzero(_whole_hashes(ordered, mixed))
        rows = order[places]
        exact = order_by_key(ordered[places], keys.take(pa.array(rows)))
        order[places] = rows[exact]
        first, _ = _first_of_key(ordered, keys, order)
    return order, first


def _order_by_hash(hashes: Hashes) -> Index:
    """A stable order by hash.

    Sorting plain numbers is several times faster than sorting an index, so the row number takes
    the place of the lowest bits of the hash. The rows that only those bits tell apart are few;
    the second sort puts them right and is next to free on what is almost sorted.
    """
    low = np.uint64((1 << max(len(hashes) - 1, 0).bit_length()) - 1)
    packed = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    order: Index = (packed & low).astype(np.int64)
    almost = hashes[order]
    if np.all(almost[1:] >= almost[:-1]):
        return order
    return order[np.argsort(almost, kind="stable")]


def _first_of_key(ordered: Hashes, keys: pa.RecordBatch, order: Index) -> tuple[Mask, Mask]:
    """Which rows begin a key, and which do so although the hash is that of the row before."""
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    alike = np.flatnonzero(~first)
    before = keys.take(pa.array(order[alike - 1]))
    after = keys.take(pa.array(order[alike]))
    mixed = np.zeros(len(order), dtype=np.bool_)
    mixed[alike] = ~same_keys(before.columns, after.columns, len(alike))
    return first | mixed, mixed


def _whole_hashes(ordered: Hashes, some: Mask) -> Mask:
    """All rows that share a hash with one of these."""
    segment = np.zeros(len(ordered), dtype=np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=segment[1:])
    chosen = np.zeros(len(ordered), dtype=np.bool_)
    chosen[segment[some]] = True
    return chosen[segment]
