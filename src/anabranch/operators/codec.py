"""Codecs between state columns and the values that a user's function sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.operators.rows import column_values, named_tuples, tuple_type
from anabranch.records.bins import Mask

UNTYPED = pa.schema([pa.field("state", pa.binary())])
"""The single state column of an operator whose state has no schema, encoded by msgspec."""


@dataclass(frozen=True, slots=True)
class StateCodec:
    """Converts state columns to the values that a user's function sees, and back."""

    schema: pa.Schema

    def decode(self, columns: pa.RecordBatch, found: Mask) -> list[Any]:
        """One value per row; None for a row without state."""
        raise NotImplementedError

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The columns for these values; None becomes a row of NULLs."""
        raise NotImplementedError

    def normalizer(self) -> Callable[[Any], Any] | None:
        """Converts a value just returned to what ``decode`` would give; None if it is the same."""
        return None


class SingleColumn(StateCodec):
    """Codec of typed state with one column: the value itself."""

    def decode(self, columns: pa.RecordBatch, found: Mask) -> list[Any]:
        """The column's values."""
        return column_values(columns.column(0))

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The values as the column's type."""
        return [to_column(values, self.schema.field(0), nulls=_count_nones(values))]


class SeveralColumns(StateCodec):
    """Codec of typed state with several columns: a named tuple."""

    def decode(self, columns: pa.RecordBatch, found: Mask) -> list[Any]:
        """A named tuple for each key with state."""
        values = named_tuples("State", columns)
        return [v if has else None for v, has in zip(values, found.tolist(), strict=True)]

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The parts of each tuple as the columns' types."""
        nothing = (None,) * len(self.schema)
        rows = [nothing if value is None else value for value in values]
        return tuples_to_columns(rows, self.schema, nulls=_count_nones(values))

    def normalizer(self) -> Callable[[Any], Any]:
        """Turns plain tuples into named ones; other values stay, and ``encode`` refuses them."""
        names = self.schema.names
        kind, width = tuple_type("State", tuple(names)), len(names)
        return lambda value: (
            kind._make(value) if type(value) is tuple and len(value) == width else value
        )


class AnyValue(StateCodec):
    """Codec of state without a schema: any value that msgspec can encode."""

    def decode(self, columns: pa.RecordBatch, found: Mask) -> list[Any]:
        """The decoded values."""
        decode = msgspec.msgpack.Decoder().decode
        return [None if raw is None else decode(raw) for raw in columns.column(0).to_pylist()]

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The values as bytes."""
        encode = msgspec.msgpack.Encoder().encode
        return [pa.array([None if v is None else encode(v) for v in values], type=pa.binary())]


def state_codec(schema: pa.Schema | None) -> StateCodec:
    """The codec for state of this schema; None means any value."""
    if schema is None:
        return AnyValue(UNTYPED)
    return SingleColumn(schema) if len(schema) == 1 else SeveralColumns(schema)


def tuples_to_columns(rows: Sequence[Any], schema: pa.Schema, *, nulls: int = 0) -> list[pa.Array]:
    """Rows as columns of these types; TypeError or ValueError if one does not fit.

    Up to ``nulls`` rows of NULLs are allowed, whatever the schema says.
    """
    if not rows:
        return [pa.array([], type=column.type) for column in schema]
    if set(map(type, rows)) & {str, bytes, dict}:
        raise TypeError("a row must be a tuple")
    try:
        width = set(map(len, rows))
    except TypeError as error:
        raise TypeError(f"a row must be a tuple: {error}") from error
    if width != {len(schema)}:
        raise ValueError(f"expected {len(schema)} values in a row, got {sorted(width)}")
    parts = zip(*rows, strict=True)
    return [to_column(p, c, nulls=nulls) for p, c in zip(parts, schema, strict=True)]


def to_column(values: Sequence[Any], column: pa.Field, *, nulls: int = 0) -> pa.Array:
    """Values as a column; TypeError or ValueError if one does not fit.

    A number with a fraction does not fit a column of integers; Arrow would cut the fraction off.
    """
    kind = column.type
    integers = pa.types.is_integer(kind) and not set(map(type, values)) <= _WHOLE
    if integers or pa.types.is_nested(kind):
        for value in values:
            _check_whole(value, kind)
    array = pa.array(values, type=kind)
    if not column.nullable and array.null_count > nulls:
        raise ValueError(f"column {column.name} may not be NULL")
    return array


_WHOLE = {int, type(None)}


def _check_whole(value: Any, kind: pa.DataType) -> None:
    if value is None:
        return
    if pa.types.is_integer(kind):
        if not isinstance(value, str | bytes) and value % 1 != 0:
            raise ValueError(f"{value!r} is not a whole number")
    elif pa.types.is_list(kind):
        for part in value:
            _check_whole(part, kind.value_type)
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for part in kind:
            _check_whole(value.get(part.name), part.type)


def _count_nones(values: Sequence[Any]) -> int:
    return sum(value is None for value in values)


def first_unfit(values: Sequence[Any], encode: Callable[[Any], object]) -> int:
    """The place of the first value that cannot be encoded by itself; 0 if each one can."""
    for place, value in enumerate(values):
        try:
            encode(value)
        except Exception:
            return place
    return 0
