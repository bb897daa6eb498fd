"""Comparing and ordering keys in Arrow columns. NULL equals only NULL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.records.bins import Hashes, Mask

Index = npt.NDArray[np.int64]


def one_batch(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The rows with each column in one chunk; a batch is returned as it is."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one chunk; an array is returned as it is."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Whether two sets of key columns have the same key, row by row."""
    same = np.ones(rows, dtype=np.bool_)
    for one, other in zip(left, right, strict=True):
        same &= _same(one, other)
    return same


def _same(left: pa.Array, right: pa.Array) -> Mask:
    if not pa.types.is_struct(left.type):
        equal = to_mask(pc.fill_null(pc.equal(left, right), False))
    else:
        fields = range(left.type.num_fields)
        # The fields of a NULL struct may hold anything; the validity test excludes them.
        equal = same_keys(
            [left.field(i) for i in fields], [right.field(i) for i in fields], len(left)
        )
        equal &= to_mask(left.is_valid()) & to_mask(right.is_valid())
    if left.null_count and right.null_count:
        equal |= to_mask(left.is_null()) & to_mask(right.is_null())
    return equal


def comes_before(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Whether the left key comes before the right one by ``order_by_key``, row by row."""
    before = np.zeros(rows, dtype=np.bool_)
    same = np.ones(rows, dtype=np.bool_)
    for whole, others in zip(left, right, strict=True):
        for one, other in zip(_flat(whole), _flat(others), strict=True):
            less = to_mask(pc.fill_null(pc.less(one, other), False))
            less |= to_mask(one.is_valid()) & to_mask(other.is_null())
            before |= same & less
            same &= _same(one, other)
    return before


def to_mask(truth: pa.BooleanArray) -> Mask:
    """A boolean array without NULLs as a writable NumPy array."""
    mask: Mask = truth.to_numpy(zero_copy_only=False)
    return mask if mask.flags.writeable else mask.copy()


def order_by_key(hashes: Hashes, keys: pa.RecordBatch) -> Index:
    """The exact, stable order by (hash, key). It is slow: use it for rows whose hashes collide.

    Any total order would do as long as all runs use the same. This one is ascending by column,
    NULL last.
    """
    columns = [pa.array(hashes)]
    for column in keys.columns:
        columns.extend(_flat(column))
    names = [str(number) for number in range(len(columns))]
    table = pa.Table.from_arrays(columns, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    exact: Index = order.to_numpy().astype(np.int64)
    return exact


def _flat(column: pa.Array) -> Iterator[pa.Array]:
    """The plain columns that order a key column; for a struct, its nullness and its fields."""
    if not pa.types.is_struct(column.type):
        yield column
        return
    yield column.is_null()
    for part in column.flatten():
        yield from _flat(part)
