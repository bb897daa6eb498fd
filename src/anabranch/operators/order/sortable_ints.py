"""Values as whole numbers that compare as the values do: booleans, numbers, dates, timestamps.

The order is SQL's and total, so that the least and the greatest of some values do not depend on the
order in which they came (R9): -0.0 is less than 0.0, and NaN, of which there is one, is greater
than every number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]


def to_words(column: pa.Array) -> pa.Array | None:
    """The values as signed integers, NULL as NULL; None for types that have no such form."""
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
    """The values that these integers stand for."""
    if pa.types.is_boolean(kind):
        return words.cast(kind)
    if not pa.types.is_floating(kind):
        return words.view(kind)
    bits = pa.array(_turned(_numbers(words)), mask=_nulls(words))
    return bits.view(kind)


def least_int(kind: pa.DataType) -> int:
    """The least word of a type."""
    return int(np.iinfo(kind.to_pandas_dtype()).min)


def greatest_int(kind: pa.DataType) -> int:
    """The greatest word of a type."""
    return int(np.iinfo(kind.to_pandas_dtype()).max)


def _from_floats(column: pa.Array) -> pa.Array:
    floats = _numbers(column)
    one_nan = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)
    bits = one_nan.view(np.int32 if floats.itemsize == 4 else np.int64)
    return pa.array(_turned(bits), mask=_nulls(column))


def _turned(bits: Numbers) -> Numbers:
    """The bits of floating numbers in ascending order, or back.

    As integers, negative numbers would ascend the wrong way: all their bits but the sign are
    inverted.
    """
    sign = bits >> (8 * bits.itemsize - 1)
    turned: Numbers = bits ^ (sign & np.iinfo(bits.dtype).max)
    return turned


def _numbers(column: pa.Array) -> Numbers:
    """The values without their NULLs, in whose places anything may stand."""
    filled = column.fill_null(0) if column.null_count else column
    numbers: Numbers = filled.to_numpy(zero_copy_only=False)
    return numbers


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
