"""Integers that compare like the values they encode: booleans, numbers, dates, timestamps.

The order is SQL's and total, so minimum and maximum do not depend on the order of the rows (R9):
-0.0 is less than 0.0, and NaN, of which there is only one, is greater than every number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.records.bins import Mask

Numbers = npt.NDArray[Any]


def to_words(column: pa.Array) -> pa.Array | None:
    """The values as signed integers, NULL as NULL; None for types without such a form."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    return _from_floats(column) if pa.types.is_floating(kind) else None


def from_words(words: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values that these integers encode."""
    if pa.types.is_boolean(kind):
        return words.cast(kind)
    if not pa.types.is_floating(kind):
        return words.view(kind)
    bits = pa.array(_flip_negatives(dense(words)), mask=_nulls(words))
    return bits.view(kind)


def dense(column: pa.Array, filler: int = 0) -> Numbers:
    """The values as an array, with ``filler`` in place of NULLs."""
    filled = column.fill_null(pa.scalar(filler, column.type)) if column.null_count else column
    numbers: Numbers = filled.to_numpy(zero_copy_only=False)
    return numbers


def _from_floats(column: pa.Array) -> pa.Array:
    floats = dense(column)
    one_nan = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)
    bits = one_nan.view(np.int32 if floats.itemsize == 4 else np.int64)
    return pa.array(_flip_negatives(bits), mask=_nulls(column))


def _flip_negatives(bits: Numbers) -> Numbers:
    """Convert the bits of floating numbers to ascending integers, or back.

    It inverts all bits but the sign of negative numbers, which would otherwise descend.
    """
    sign = bits >> (8 * bits.itemsize - 1)
    flipped: Numbers = bits ^ (sign & np.iinfo(bits.dtype).max)
    return flipped


def _nulls(column: pa.Array) -> Mask | None:
    if not column.null_count:
        return None
    nulls: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
