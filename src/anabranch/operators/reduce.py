"""Sum, minimum, maximum and count of sorted segments of a column, with SQL's NULLs.

Numbers are reduced by NumPy. A sum adds the rows in order and depends on nothing but the segment,
so a floating sum is the same on any number of workers (R9). Other types are reduced by Arrow's
grouping. No segment is empty: each is the rows of one key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import Overflow
from anabranch.operators.order import sortable_ints
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.order.sortable_ints import Numbers, dense
from anabranch.runs.keys import one_chunk

WHOLE_SUM = pa.decimal128(38, 0)
"""A type for sums of integers that no number of rows can overflow."""

_HALF = 32
_LOW = (1 << _HALF) - 1
_SHORT_DECIMAL = 28
"""Sums of up to ten billion decimals of this precision fit 128 bits."""


def count(column: pa.Array | None, starts: Int64s, rows: int) -> Int64s:
    """The number of values in each segment that are not NULL; of rows, if there is no column."""
    ends = np.append(starts[1:], rows)
    if column is None or column.null_count == 0:
        return (ends - starts).astype(np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return np.add.reduceat(valid, starts)


def sum_segments(column: pa.Array, starts: Int64s, kind: pa.DataType, where: str) -> pa.Array:
    """The sum of each segment as ``kind``; NULL for a segment without values.

    Raises ``Overflow`` if, and only if, the sum of a segment does not fit.
    """
    if pa.types.is_decimal(column.type):
        wide = column
        if column.type.precision > _SHORT_DECIMAL:
            wide = column.cast(pa.decimal256(column.type.precision, column.type.scale))
        return _narrow(_reduce_groups(wide, starts, "sum"), kind, where)
    if pa.types.is_floating(kind):
        # Spark too starts with 0.0, so no sum is -0.0.
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.add.reduceat(dense(column.cast(kind)), starts) + 0.0
        return _nullable(sums, column, starts)
    values = dense(column.cast(pa.int64()))
    if pa.types.is_decimal(kind):
        high, low = _halves(values, starts)
        return _nullable(_join_halves(high, low), column, starts)
    _check_fits(values, starts, where)
    return _nullable(np.add.reduceat(values, starts), column, starts)


def add_columns(before: pa.Array, part: pa.Array, where: str) -> pa.Array:
    """The sum of two columns of one type; NULL adds nothing. Raises ``Overflow`` as above."""
    if before.null_count == len(before):
        return part
    if pa.types.is_decimal(part.type):
        # Arrow refuses to add decimals of full precision in 128 bits.
        wide = pa.decimal256(part.type.precision, part.type.scale)
        both = _narrow(pc.add(before.cast(wide), part.cast(wide)), part.type, where)
    elif pa.types.is_integer(part.type):
        try:
            both = pc.add_checked(before, part)
        except pa.ArrowInvalid as error:
            raise overflow_error("a sum", part.type, where) from error
    else:
        both = pc.add(before, part)
    return pc.coalesce(both, before, part) if both.null_count else both


def extreme_of_segments(column: pa.Array, starts: Int64s, *, least: bool) -> pa.Array:
    """The least or greatest value of each segment; NaN counts as greater than any number."""
    plain = sortable_ints.to_words(column)
    if plain is None:
        return _reduce_groups(column, starts, "min" if least else "max")
    limits = np.iinfo(plain.type.to_pandas_dtype())
    filled = dense(plain, int(limits.max if least else limits.min))
    reduced = (np.minimum if least else np.maximum).reduceat(filled, starts)
    return sortable_ints.from_words(_nullable(reduced, column, starts), column.type)


def extreme_of_two(left: pa.Array, right: pa.Array, *, least: bool) -> pa.Array:
    """The lesser or greater of two values, row by row; a NULL never wins."""
    choose = pc.min_element_wise if least else pc.max_element_wise
    one, other = sortable_ints.to_words(left), sortable_ints.to_words(right)
    if one is None or other is None:
        return choose(left, right, skip_nulls=True)
    return sortable_ints.from_words(choose(one, other, skip_nulls=True), left.type)


def _check_fits(values: Int64s, starts: Int64s, where: str) -> None:
    if not len(values) or len(values) * max(-int(values.min()), int(values.max())) < 1 << 63:
        return
    high, low = _halves(values, starts)
    top = high + (low >> _HALF)
    if np.any(top != top.astype(np.int32)):
        raise overflow_error("a sum", pa.int64(), where)


def _halves(values: Int64s, starts: Int64s) -> tuple[Int64s, Int64s]:
    """The sums of the upper and of the lower halves of each segment's numbers, which always fit."""
    return np.add.reduceat(values >> _HALF, starts), np.add.reduceat(values & _LOW, starts)


def _join_halves(high: Int64s, low: Int64s) -> pa.Array:
    half = pa.decimal128(19, 0)
    shift = pa.scalar(1 << _HALF, pa.decimal128(10, 0))
    upper = pc.multiply(pa.array(high).cast(half), shift)
    return pc.add(upper, pa.array(low).cast(half)).cast(WHOLE_SUM)


def _narrow(sums: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    try:
        return sums.cast(kind)
    except pa.ArrowInvalid as error:
        raise overflow_error("a sum", kind, where) from error


def overflow_error(what: str, kind: pa.DataType, where: str) -> Overflow:
    """The error for a result that does not fit its type."""
    if pa.types.is_decimal(kind):
        text, instead = f"decimal({kind.precision},{kind.scale})", "a double"
    else:
        text, instead = "bigint", "a decimal(38, 0) or a double"
    return Overflow(
        f"{what} is out of range for {text}",
        where=where,
        do=f"Cast the argument of the aggregate to {instead}.",
    )


def _nullable(values: Numbers | pa.Array, column: pa.Array, starts: Int64s) -> pa.Array:
    """The values, NULL where the column's segment has no values."""
    whole = values if isinstance(values, pa.Array) else pa.array(values)
    if column.null_count == 0:
        return whole
    some = count(column, starts, len(column)) > 0
    return pc.if_else(pa.array(some), whole, pa.scalar(None, whole.type))


def _reduce_groups(column: pa.Array, starts: Int64s, name: str) -> pa.Array:
    lengths = np.diff(np.append(starts, len(column)))
    segment = pa.array(np.repeat(np.arange(len(starts)), lengths))
    grouped = pa.table({"g": segment, "v": column}).group_by("g", use_threads=False)
    return one_chunk(grouped.aggregate([("v", name)]).sort_by("g").column(f"v_{name}"))
