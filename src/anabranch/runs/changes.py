"""The changes that a step makes to keys, and their encoding as state rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.records.bins import Hashes, Mask, check_hashes
from anabranch.records.layout import BLOB_TYPE, DUE_ORDER_TYPE, EXPIRY_TYPE, Layout, nullable
from anabranch.runs.keys import Index, one_batch, one_chunk, to_mask
from anabranch.runs.rows import group_keys, is_ascending

Rows: TypeAlias = pa.Table | pa.RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class KeyChanges:
    """New values of keys, in any order, each key once; ``tombstone`` marks forgotten keys.

    Columns match the layout by position and type. The values of a forgotten key are ignored. If
    the layout has sub-keys, each row is an entry, and each pair of key and sub-key occurs once.
    ``expiry`` is 64-bit nanoseconds since the epoch, NULL for never; without it nothing expires.
    """

    hashes: Hashes
    keys: Rows
    values: Rows
    tombstone: Mask
    subkeys: Rows | None = None
    expiry: pa.Array | pa.ChunkedArray | None = None

    def __len__(self) -> int:
        """The number of keys or entries."""
        return len(self.hashes)


def sorted_order(changed: KeyChanges) -> Index:
    """The order of the changes by (hash, key, sub-key); ``ValueError`` for duplicates."""
    if is_ascending(changed.hashes):
        return np.arange(len(changed))
    keys = changed.keys
    if changed.subkeys is not None:
        keys = identity(keys, changed.subkeys)
    groups = group_keys(changed.hashes, keys)
    if len(groups) < len(changed):
        what = "a key" if changed.subkeys is None else "a pair of key and sub-key"
        raise ValueError(f"{what} occurs twice in what one step changed")
    return groups.order


def identity(keys: Rows, subkeys: Rows) -> pa.RecordBatch:
    """The key and sub-key columns that identify entries, side by side and numbered."""
    columns = [*one_batch(keys).columns, *one_batch(subkeys).columns]
    return pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])


def to_rows(
    layout: Layout, changed: KeyChanges, order: Index, blob: pa.Array | None = None
) -> pa.RecordBatch:
    """Encode the changes as state rows in this order; ``blob`` is the blob of each large row.

    The values of a row with a blob are ignored.
    """
    check_hashes(changed.hashes)
    keys, values = one_batch(changed.keys), one_batch(changed.values)
    subkeys = pa.table({}) if changed.subkeys is None else changed.subkeys
    hidden = changed.tombstone
    if blob is not None:
        hidden = hidden | to_mask(blob.is_valid())
    columns = [
        pa.array(changed.hashes),
        *fit("key", keys, layout.keys),
        *fit("sub-key", one_batch(subkeys), layout.subkeys),
        *fit("value", _without(values, hidden), layout.values),
        *_optional(layout, changed, blob),
        pa.array(changed.tombstone, type=pa.bool_()),
        # The order is that of a whole run: whoever writes one computes it.
        *([pa.nulls(len(changed), DUE_ORDER_TYPE)] if layout.dues else []),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
    in_order = np.array_equal(order, np.arange(len(order)))
    return rows if in_order else rows.take(pa.array(order))


def _optional(layout: Layout, changed: KeyChanges, blob: pa.Array | None) -> list[pa.Array]:
    """The columns for expiry and blob, if the layout has them."""
    columns = []
    if layout.expires:
        expiry = pa.nulls(len(changed), EXPIRY_TYPE)
        if changed.expiry is not None:
            expiry = one_chunk(changed.expiry)
        if expiry.type != EXPIRY_TYPE:
            raise TypeError(f"expiry must be nanoseconds as {EXPIRY_TYPE}, not {expiry.type}")
        if changed.tombstone.any():
            expiry = pc.if_else(pa.array(changed.tombstone), pa.scalar(None, EXPIRY_TYPE), expiry)
        columns.append(expiry)
    elif changed.expiry is not None:
        raise TypeError("the layout has no expiry")
    if layout.blobs:
        columns.append(pa.nulls(len(changed), BLOB_TYPE) if blob is None else blob)
    return columns


def _without(values: pa.RecordBatch, hidden: Mask) -> pa.RecordBatch:
    """The values with NULL in the hidden rows."""
    if not hidden.any():
        return values
    return values.take(pa.array(np.arange(len(hidden)), mask=hidden))


def fit(what: str, given: pa.RecordBatch, wanted: pa.Schema) -> list[pa.Array]:
    """Cast columns to the layout's types; only the nullability of nested fields may differ."""
    types = [nullable(kind) for kind in given.schema.types]
    if types != wanted.types:
        raise TypeError(f"{what} columns are {types}, not {wanted.types}")
    return [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(given.columns, wanted.types, strict=True)
    ]
