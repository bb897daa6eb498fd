"""Rows as JSON lines that Spark's JSON reader gives back unchanged under the same schema.

Printed as Spark's own writer does, but for one thing: timestamps keep their microseconds, which
Spark's default format cuts off. Timestamps have a zone (``Z``), those without a time zone have
none; NaN and infinities are strings; binary is base64; decimals are numbers with all their
digits; NULL fields of rows and structs are left out, NULL elements of lists and maps are
``null``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def encode_json_lines(table: pa.Table) -> pa.Buffer:
    """Give one line per row, in order."""
    lines = [
        _ENCODER.encode_lines(_objects(table.schema.names, map(_values, batch.columns)))
        for batch in table.to_batches()
        if batch.num_columns
    ]
    return pa.py_buffer(b"".join(lines))


def _values(array: pa.Array) -> list[Any]:
    """Give an array's values as what msgspec prints the right way, ``None`` for NULL."""
    for is_kind, convert in _CONVERSIONS:
        if is_kind(array.type):
            return convert(array)
    return _plain(array)


def _objects(names: Sequence[str], columns: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _times(array: pa.Array) -> list[Any]:
    # Arrow prints every time that 64 bits can hold; Python's own type ends at the year 9999.
    utc = array.cast(pa.timestamp("us", tz="UTC")) if array.type.tz else array
    text = pc.cast(utc, pa.string())
    return _plain(pc.replace_substring(text, " ", "T", max_replacements=1))


def _doubles(array: pa.Array) -> list[Any]:
    values = _plain(array)
    if pc.all(pc.is_finite(array), skip_nulls=True).as_py() in (True, None):
        return values
    return [_finite_or_text(value) for value in values]


def _floats(array: pa.Array) -> list[Any]:
    # By way of the shortest text that means this 32-bit number, so that 0.1 stays 0.1.
    texts = _plain(pc.cast(array, pa.string()))
    return [None if text is None else _finite_or_text(float(text)) for text in texts]


def _finite_or_text(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _structs(array: pa.StructArray) -> list[Any]:
    kind = array.type
    names = [kind.field(i).name for i in range(kind.num_fields)]
    return _with_nulls(array, _objects(names, map(_values, array.flatten())))


def _lists(array: pa.ListArray) -> list[Any]:
    flat = _values(array.values)
    return _with_nulls(array, [flat[start:end] for start, end in pairwise(_plain(array.offsets))])


def _maps(array: pa.MapArray) -> list[Any]:
    keys, items = _plain(array.keys), _values(array.items)
    made = [
        dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(_plain(array.offsets))
    ]
    return _with_nulls(array, made)


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    valid = _plain(array.is_valid())
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def _plain(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (types.is_timestamp, _times),
    (types.is_date32, lambda dates: _plain(pc.cast(dates, pa.string()))),
    (types.is_float64, _doubles),
    (types.is_float32, _floats),
    (types.is_struct, _structs),
    (types.is_list, _lists),
    (types.is_large_list, _lists),
    (types.is_map, _maps),
)
