"""The size of ranges of rows in bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.runs.keys import Index


def bytes_between(batch: pa.RecordBatch, offsets: Index) -> Index:
    """The bytes of the rows between neighbouring offsets, without validity bitmaps."""
    none = np.zeros(len(offsets) - 1, dtype=np.int64)
    return sum((_column_bytes(column, offsets) for column in batch.columns), start=none)


def _column_bytes(column: pa.Array, offsets: Index) -> Index:
    kind, rows = column.type, np.diff(offsets)
    if pa.types.is_struct(kind):
        return sum((_column_bytes(part, offsets) for part in column.flatten()), start=0 * rows)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return rows * int(kind.bit_width) // 8
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        ends: Index = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        sizes: Index = np.diff(ends[offsets]) + 4 * rows
        return sizes
    slices = (
        column.slice(start, stop - start).nbytes for start, stop in pairwise(offsets.tolist())
    )
    return np.fromiter(slices, dtype=np.int64, count=len(rows))
