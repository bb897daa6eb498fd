"""State rows as sorted columns: grouping, look-up and merging, a column at a time.

Hash collisions are handled exactly: wherever hashes are equal, full keys are compared. Rows are
ordered by (hash, key, sub-key). The order of keys matters only among equal hashes and is that of
``keys.order_by_key``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes, Mask, bin_of, bin_offsets, check_hashes
from anabranch.records.layout import Layout, check_key_types
from anabranch.runs.expiry import expired_rows
from anabranch.runs.keys import Index, comes_before, one_batch, order_by_key, same_keys, to_mask
from anabranch.runs.sorted_rows import SortedRows, concat_rows, hash_column


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The rows of a batch grouped by key.

    ``order`` lists the rows by (hash, key), equal keys in the order of the batch; ``starts`` is
    where each group begins in it; ``group_of_row`` is the group of each row of the batch.
    ``hashes`` and ``keys`` have one row per group, sorted and unique, ready for a look-up.
    """

    order: Index
    starts: Index
    group_of_row: Index
    hashes: Hashes
    keys: pa.RecordBatch

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.starts)


def group_keys(hashes: Hashes, keys: pa.Table | pa.RecordBatch) -> Groups:
    """Group the rows of a batch by key; the rows may be in any order.

    >>> keys = pa.record_batch({"name": ["b", "a", "b"]})
    >>> groups = group_keys(np.array([7, 3, 7], dtype=np.uint64), keys)
    >>> groups.order.tolist(), groups.starts.tolist(), groups.group_of_row.tolist()
    ([1, 0, 2], [0, 1], [1, 0, 1])
    """
    check_hashes(hashes)
    check_key_types(keys.schema)
    keys = one_batch(keys)
    order, first = _sort_by_key(_order_by_hash(hashes), hashes, keys)
    starts = np.flatnonzero(first)
    group_of_row = np.empty(len(order), dtype=np.int64)
    group_of_row[order] = np.cumsum(first) - 1
    leaders = order[starts]
    return Groups(order, starts, group_of_row, hashes[leaders], keys.take(pa.array(leaders)))


def is_ascending(hashes: Hashes) -> bool:
    """Whether hashes strictly ascend, which means that their rows are sorted and unique."""
    return bool(np.all(hashes[1:] > hashes[:-1]))


def merge_rows(layout: Layout, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merge sorted parts into one batch with the newest row of every key and sub-key.

    ``parts`` are newest first. Tombstones stay.
    """
    if layout.has_subkeys:
        return _merge_entries(layout, [part for part in parts if part.num_rows])
    whole = concat_rows(layout.schema, parts)
    hashes = hash_column(whole)
    if is_ascending(hashes):
        return whole
    # NumPy's stable sort merges the sorted parts, in a third of the time of ``_order_by_hash``.
    order = np.argsort(hashes, kind="stable")
    order, first = _sort_by_key(order, hashes, whole.select(layout.key_columns))
    return whole.take(pa.array(order[first]))


def _merge_entries(layout: Layout, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    # Oldest first: items appended to a list are then in order and need no exact sort.
    whole = concat_rows(layout.schema, parts[::-1])
    newest = newest_entries(hash_column(whole), whole.select(layout.identity_columns))
    return whole.take(pa.array(newest))


def newest_entries(groups: Hashes, keys: pa.RecordBatch) -> Index:
    """The last row of every key, ordered by (group, key), in a batch of a few sorted parts."""
    order, first = _sort_by_key(np.argsort(groups, kind="stable"), groups, keys)
    return order[np.roll(first, -1)]


def drop_tombstones(
    layout: Layout, batch: pa.RecordBatch, at_bottom: Mask, bins: int
) -> pa.RecordBatch:
    """Drop the tombstones of the bins that have no older runs."""
    dead = to_mask(batch.column(layout.tombstone_column))
    if not dead.any():
        return batch
    dead &= at_bottom[bin_of(hash_column(batch), bins)]
    return batch.filter(pa.array(~dead))


@dataclass(frozen=True, slots=True, eq=False)
class LookupResult:
    """The result of a look-up, with a row per key (or pair of key and sub-key) asked for.

    ``found`` says which are held; values, expiry and blob of the others are NULL. ``present`` also
    includes expired rows that were not merged away yet: they still count as live, so a write
    needs ``present``.
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
) -> LookupResult:
    """Look up keys, or entries, for which ``keys`` has key and sub-key columns.

    ``stack`` is newest first; each member has a mask of the bins it is listed for. The keys must
    be sorted by hash and unique.
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
    return _lookup_result(layout, pieces, place, found, now_ns)


def _lookup_result(
    layout: Layout, pieces: Sequence[pa.RecordBatch], place: Index, found: Mask, now_ns: int | None
) -> LookupResult:
    present = found
    if pieces:
        rows = pa.concat_batches(pieces)
        if layout.expires:
            found = found & ~expired_rows(layout, rows, now_ns)[place]
        chosen = pa.array(place, mask=None if found.all() else ~found)
        columns = rows.select(range(len(layout.payload_columns))).take(chosen).columns
    else:
        types = [layout.schema.field(column).type for column in layout.payload_columns]
        columns = [pa.nulls(len(place), kind) for kind in types]
    values = pa.RecordBatch.from_arrays(columns[: len(layout.values)], schema=layout.values)
    first = layout.expiry_column - len(layout.values)
    return LookupResult(
        found,
        present,
        values,
        columns[layout.expiry_column - first] if layout.expires else None,
        columns[layout.blob_column - first] if layout.blobs else None,
    )


def _sort_by_key(order: Index, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Index, Mask]:
    """Sort by (hash, key), stably; also return which rows, in this order, are first of their key.

    ``order`` is the stable order by hash. It is changed in place where hashes collide.
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
    """Which of the ``mixed`` rows have a key that belongs before that of the previous row."""
    wrong = np.zeros(len(order), dtype=np.bool_)
    places = np.flatnonzero(mixed)
    before = keys.take(pa.array(order[places - 1]))
    here = keys.take(pa.array(order[places]))
    wrong[places] = comes_before(here.columns, before.columns, len(places))
    return wrong


def _order_by_hash(hashes: Hashes) -> Index:
    """A stable order by hash.

    Sorting plain numbers is several times faster than sorting an index, so the row number replaces
    the lowest bits of the hash. Few rows differ only in those bits; a second sort corrects them
    and costs next to nothing on almost sorted rows.
    """
    if np.all(hashes[1:] >= hashes[:-1]):
        return np.arange(len(hashes))
    low = np.uint64((1 << max(len(hashes) - 1, 0).bit_length()) - 1)
    packed = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    order: Index = (packed & low).astype(np.int64)
    almost = hashes[order]
    if np.all(almost[1:] >= almost[:-1]):
        return order
    return order[np.argsort(almost, kind="stable")]


def _first_of_key(ordered: Hashes, keys: pa.RecordBatch, order: Index) -> tuple[Mask, Mask]:
    """Which rows begin a key, and which of them have the same hash as the previous row."""
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    alike = np.flatnonzero(~first)
    before = keys.take(pa.array(order[alike - 1]))
    after = keys.take(pa.array(order[alike]))
    mixed = np.zeros(len(order), dtype=np.bool_)
    mixed[alike] = ~same_keys(before.columns, after.columns, len(alike))
    return first | mixed, mixed


def _whole_hashes(ordered: Hashes, some: Mask) -> Mask:
    """All rows that share a hash with one of ``some``."""
    segment = np.zeros(len(ordered), dtype=np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=segment[1:])
    chosen = np.zeros(len(ordered), dtype=np.bool_)
    chosen[segment[some]] = True
    return chosen[segment]
