"""Reducing sorted segments of a column: sum, least, greatest and count, with SQL's NULLs.

Numbers go through NumPy. Its sums are taken in the order of the rows and depend on nothing but the
segment, so a floating sum comes out the same on any number of workers (R9). Other types go through
Arrow's own grouping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import Overflow

Int64s = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

_LARGEST = float(2**62)


def count(column: pa.Array | None, starts: Int64s, rows: int) -> Int64s:
    """How many values of each segment are not NULL; of rows, where there is no column."""
    ends = np.append(starts[1:], rows)
    if column is None or column.null_count == 0:
        return (ends - starts).astype(np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return np.add.reduceat(valid, starts)


def total(column: pa.Array, starts: Int64s, kind: pa.DataType, where: str) -> pa.Array:
    """The sum of each segment as ``kind``; NULL where a segment has no value."""
    if pa.types.is_decimal(column.type):
        return _grouped(column, starts, "sum").cast(kind)
    values = _dense(column.cast(kind), 0)
    if pa.types.is_integer(kind):
        check_range(np.add.reduceat(np.abs(values.astype(np.float64)), starts), where)
    return _nullable(np.add.reduceat(values, starts), column, starts, kind)


def least(column: pa.Array, starts: Int64s) -> pa.Array:
    """The least value of each segment; NaN counts as greater than any number."""
    return _extreme(column, starts, np.fmin.reduceat, "min", _top)


def greatest(column: pa.Array, starts: Int64s) -> pa.Array:
    """The greatest value of each segment; NaN counts as greater than any number."""
    return _extreme(column, starts, np.maximum.reduceat, "max", _bottom)


def check_range(estimate: npt.NDArray[np.float64], where: str) -> None:
    """Raise ``Overflow`` when a sum of this size might not fit 64 bits."""
    if len(estimate) and float(estimate.max()) >= _LARGEST:
        raise Overflow(
            "a sum of integers left the range of bigint",
            where=where,
            do="Sum a decimal or a double instead, as in sum(cast(x as decimal(38, 0))).",
        )


def _extreme(
    column: pa.Array,
    starts: Int64s,
    reduce: Callable[[Numbers, Int64s], Numbers],
    name: str,
    neutral: Callable[[np.dtype[Any]], Any],
) -> pa.Array:
    kind = column.type
    word = _word(kind)
    if word is None:
        return _grouped(column, starts, name)
    plain = column if word == kind else column.view(word)
    values = _dense(plain, neutral(np.dtype(word.to_pandas_dtype())))
    return _nullable(reduce(values, starts), column, starts, word).view(kind)


def _word(kind: pa.DataType) -> pa.DataType | None:
    """The number type whose order is that of ``kind``, if it has one."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return kind
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else None


def _top(kind: np.dtype[Any]) -> Any:
    return kind.type(np.nan) if kind.kind == "f" else np.iinfo(kind).max


def _bottom(kind: np.dtype[Any]) -> Any:
    return kind.type(-np.inf) if kind.kind == "f" else np.iinfo(kind).min


def _dense(column: pa.Array, filler: Any) -> Numbers:
    filled = pc.fill_null(column, pa.scalar(filler, column.type)) if column.null_count else column
    dense: Numbers = filled.to_numpy(zero_copy_only=False)
    return dense


def _nullable(values: Numbers, column: pa.Array, starts: Int64s, kind: pa.DataType) -> pa.Array:
    if column.null_count == 0:
        return pa.array(values, type=kind)
    return pa.array(values, type=kind, mask=count(column, starts, len(column)) == 0)


def _grouped(column: pa.Array, starts: Int64s, name: str) -> pa.Array:
    lengths = np.diff(np.append(starts, len(column)))
    segment = pa.array(np.repeat(np.arange(len(starts)), lengths))
    grouped = pa.table({"g": segment, "v": column}).group_by("g", use_threads=False)
    reduced = grouped.aggregate([("v", name)]).sort_by("g").column(f"v_{name}")
    joined = reduced.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
