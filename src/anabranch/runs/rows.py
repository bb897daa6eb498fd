"""Rows of state as sorted columns: grouping, looking up and merging, a column at a time.

Everything is exact when hashes collide: full keys are compared wherever hashes are equal. Rows
are ordered by (hash, key, sub-key); the order of keys matters only where hashes are equal and is
then that of ``keys.order_by_key``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes, Mask, bin_of, bin_offsets, check_hashes
from anabranch.records.layout import Layout, check_key_types
from anabranch.runs.expiry import expired_rows
from anabranch.runs.keys import (
    Index,
    comes_before,
    one_batch,
    order_by_key,
    same_keys,
    to_mask,
)
from anabranch.runs.sorted_rows import SortedRows, concat_rows, hash_column


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
    order, first = _ordered(_order_by_hash(hashes), hashes, keys)
    starts = np.flatnonzero(first)
    group_of_row = np.empty(len(order), dtype=np.int64)
    group_of_row[order] = np.cumsum(first) - 1
    leaders = order[starts]
    return Groups(order, starts, group_of_row, hashes[leaders], keys.take(pa.array(leaders)))


def is_ascending(hashes: Hashes) -> bool:
    """Whether each hash is larger than the one before: then the rows are sorted and unique."""
    return bool(np.all(hashes[1:] > hashes[:-1]))


def merge_rows(layout: Layout, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One sorted batch with the newest row of every key and sub-key, tombstones included.

    ``parts`` are newest first. Each is sorted; parts that hold the same key differ in age.
    """
    if layout.has_subkeys:
        return _merge_entries(layout, [part for part in parts if part.num_rows])
    whole = concat_rows(layout.schema, parts)
    hashes = hash_column(whole)
    if is_ascending(hashes):
        return whole
    order, first = _ordered(_order_of_parts(hashes), hashes, whole.select(layout.key_columns))
    return whole.take(pa.array(order[first]))


def _merge_entries(layout: Layout, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    # Oldest first: what was appended to a list then lies in order, and needs no exact sort.
    whole = concat_rows(layout.schema, parts[::-1])
    newest = newest_entries(hash_column(whole), whole.select(layout.identity_columns))
    return whole.take(pa.array(newest))


def newest_entries(groups: Hashes, keys: pa.RecordBatch) -> Index:
    """The last row of every key in the batch, in the order by (group, key).

    The batch is made of a few parts that are sorted.
    """
    order, first = _ordered(_order_of_parts(groups), groups, keys)
    return order[np.roll(first, -1)]


def drop_tombstones(
    layout: Layout, batch: pa.RecordBatch, at_bottom: Mask, bins: int
) -> pa.RecordBatch:
    """The rows without the tombstones of those bins below which nothing older is listed."""
    dead = to_mask(batch.column(layout.tombstone_column))
    if not dead.any():
        return batch
    dead &= at_bottom[bin_of(hash_column(batch), bins)]
    return batch.filter(pa.array(~dead))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What a look-up found, a row for each key (or pair of key and sub-key) asked for.

    ``found`` is what is held; values, expiry and blob are NULL elsewhere. ``present`` is more
    where rows expire: also what has expired but was not merged away. It is still counted, so that
    this is what a write wants to know of the keys it changes.
    """

    found: Mask
    present: Mask
    values: pa.RecordBatch
    expiry: pa.Array | None = None
    blob: pa.Array | None = None


def lookup(
    layout: Layout,
    stack: Sequence[tuple[SortedRows, Mask]],
    bins: int,
    hashes: Hashes,
    keys: pa.RecordBatch,
    now_ns: int | None = None,
) -> Held:
    """Find keys, or entries: then ``keys`` has the key columns and the sub-key columns.

    ``stack`` is newest first; each member has a truth value per bin that says for which bins it
    counts. What is asked for is sorted by hash and unique.
    """
    place = np.zeros(len(hashes), dtype=np.int64)
    found = np.zeros(len(hashes), dtype=np.bool_)
    missing = np.ones(len(hashes), dtype=np.bool_)
    per_bin = np.diff(bin_offsets(hashes, bins))
    columns = [*layout.payload_columns, layout.tombstone_column]
    pieces: list[pa.RecordBatch] = []
    taken = 0
    for rows, counts in stack:
        asked = np.flatnonzero(missing & np.repeat(counts, per_bin))
        match = rows.match_entries if layout.has_subkeys else rows.match
        matched, positions = match(layout, hashes, keys, asked)
        if not len(matched):
            continue
        piece = rows.take(positions, columns)
        found[matched] = ~to_mask(piece.column(len(columns) - 1))
        place[matched] = np.arange(taken, taken + len(matched))
        taken += len(matched)
        pieces.append(piece)
        missing[matched] = False
    return _held(layout, pieces, place, found, now_ns)


def _held(
    layout: Layout,
    pieces: Sequence[pa.RecordBatch],
    place: Index,
    found: Mask,
    now_ns: int | None,
) -> Held:
    present = found
    if pieces:
        rows = pa.concat_batches(pieces)
        if layout.expires:
            found = found & ~expired_rows(layout, rows, now_ns)[place]
        chosen = pa.array(place, mask=None if found.all() else ~found)
        kept = rows.select(range(len(layout.payload_columns))).take(chosen).columns
    else:
        types = [layout.schema.field(column).type for column in layout.payload_columns]
        kept = [pa.nulls(len(place), kind) for kind in types]
    values = pa.RecordBatch.from_arrays(kept[: len(layout.values)], schema=layout.values)
    first = layout.expiry_column - len(layout.values)
    return Held(
        found,
        present,
        values,
        kept[layout.expiry_column - first] if layout.expires else None,
        kept[layout.blob_column - first] if layout.blobs else None,
    )


def _ordered(order: Index, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Index, Mask]:
    """The stable order by (hash, key), and in it which rows are the first of their key.

    ``order`` is the stable order by hash, which is changed where hashes collide.
    """
    ordered = hashes[order]
    first, mixed = _first_of_key(ordered, keys, order)
    if mixed.any():
        wrong = _out_of_order(keys, order, mixed)
        if wrong.any():
            places = np.flatnonzero(_whole_hashes(ordered, wrong))
            rows = order[places]
            exact = order_by_key(ordered[places], keys.take(pa.array(rows)))
            order[places] = rows[exact]
            first, _ = _first_of_key(ordered, keys, order)
    return order, first


def _out_of_order(keys: pa.RecordBatch, order: Index, mixed: Mask) -> Mask:
    """Which of these rows have a key that belongs before that of the row before."""
    wrong = np.zeros(len(order), dtype=np.bool_)
    places = np.flatnonzero(mixed)
    before = keys.take(pa.array(order[places - 1]))
    here = keys.take(pa.array(order[places]))
    wrong[places] = comes_before(here.columns, before.columns, len(places))
    return wrong


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


def _order_of_parts(hashes: Hashes) -> Index:
    """The same for a few ascending sequences one after the other.

    NumPy's stable sort finds and merges them, in a third of the time of sorting numbers anew.
    """
    return np.argsort(hashes, kind="stable")


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
