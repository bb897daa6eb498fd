"""Counts and hashes of rows, the same however the rows are spread and sorted.

A replayed step must give the rows it gave before. Their hash is the sum of a hash per row over the
key and every column that is not floating (floating sums may differ in the last bit when code is
compiled otherwise), so it can be added up over tasks and bins in any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UInt64s = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0x165667B19E3779F9)
_HALF = np.uint64(32)
_WORD = 8


def row_hashes(rows: pa.Table, seed: UInt64s | None = None) -> UInt64s:
    """A hash of each row over its columns that are not floating; ``seed`` is the key's hash."""
    total = np.zeros(rows.num_rows, dtype=np.uint64) if seed is None else seed.copy()
    for column in rows.columns:
        if not (pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
            total = _mix(total * _STEP + _column(_one_chunk(column)))
    return total


def digest(hashes: UInt64s) -> int:
    """The hash of a set of rows: the sum of theirs, which does not know their order."""
    return int(hashes.sum(dtype=np.uint64)) if len(hashes) else 0


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _mix(values: UInt64s) -> UInt64s:
    values = values * _ODD
    return values ^ (values >> _HALF)


def _column(array: pa.Array) -> UInt64s:
    hashed = _mix(_words(array))
    if array.null_count:
        hashed[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashed


def _words(array: pa.Array) -> UInt64s:
    """Each value as one word; equal values give equal words."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = pa.table(array.flatten(), names=[str(i) for i in range(kind.num_fields)])
        return row_hashes(fields)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(array)
    if pa.types.is_boolean(kind):
        return _filled(array.cast(pa.uint8()))
    if pa.types.is_decimal(kind) or pa.types.is_nested(kind):
        return _texts(pa.array([None if v is None else repr(v) for v in array.to_pylist()]))
    width = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[kind.bit_width // _WORD]
    return _filled(array.view(width))


def _filled(array: pa.Array) -> UInt64s:
    dense = pc.fill_null(array, 0) if array.null_count else array
    return dense.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)


def _texts(array: pa.Array) -> UInt64s:
    """Length, sum of the bytes, and the words at both ends: no single change goes unseen."""
    wide = array.cast(pa.large_binary())
    if wide.null_count:
        wide = pc.fill_null(wide, b"")
    buffers = wide.buffers()
    first = wide.offset
    offsets = np.frombuffer(buffers[1], dtype=np.int64)[first : first + len(wide) + 1]
    raw = np.frombuffer(buffers[2], dtype=np.uint8) if buffers[2] else np.empty(0, np.uint8)
    base = int(offsets[0]) if len(offsets) else 0
    data = raw[base : int(offsets[-1])] if len(offsets) else raw[:0]
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum(data, dtype=np.uint64, out=sums[1:])
    starts, ends = offsets[:-1] - base, offsets[1:] - base
    total = (sums[ends] - sums[starts]) * _STEP + (ends - starts).astype(np.uint64)
    padded = np.concatenate((data, np.zeros(_WORD, dtype=np.uint8)))
    for i in range(_WORD):
        inside = starts + i < ends
        front = np.where(inside, padded[np.minimum(starts + i, len(data))], 0)
        back = np.where(inside, padded[np.maximum(ends - 1 - i, 0)], 0)
        total = total * _ODD + front.astype(np.uint64) * _STEP + back.astype(np.uint64)
    return total
