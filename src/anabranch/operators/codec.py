"""State columns to the values that a user's function sees, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.operators.rows import column_values, named_tuples

UNTYPED = pa.schema([pa.field("state", pa.binary())])
"""The state columns of an operator whose state has no schema: one, encoded by msgspec."""


class StateCodec(Protocol):
    """Turns state columns into the values that a user's function sees, and back."""

    schema: pa.Schema

    def decode(self, columns: pa.RecordBatch, found: npt.NDArray[np.bool_]) -> list[Any]:
        """One value per row; None where there is no state."""
        ...

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The columns for these values; a None is a row of NULLs."""
        ...


@dataclass(frozen=True, slots=True)
class SingleColumn:
    """Typed state of one column: the value itself."""

    schema: pa.Schema

    def decode(self, columns: pa.RecordBatch, found: npt.NDArray[np.bool_]) -> list[Any]:
        """The column's values."""
        return column_values(columns.column(0))

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """The values as the column's type."""
        return [pa.array(values, type=self.schema.field(0).type)]


@dataclass(frozen=True, slots=True)
class SeveralColumns:
    """Typed state of several columns: a named tuple."""

    schema: pa.Schema

    def decode(self, columns: pa.RecordBatch, found: npt.NDArray[np.bool_]) -> list[Any]:
        """A named tuple for each key that has state."""
        values = named_tuples("State", columns)
        return [v if has else None for v, has in zip(values, found.tolist(), strict=True)]

    def encode(self, values: Sequence[Any]) -> list[pa.Array]:
        """Each tuple's parts as the columns' types."""
        nothing = (None,) * len(self.schema)
        rows = [nothing if value is None else value for value in values]
        return tuples_to_columns(rows, self.schema)


@dataclass(frozen=True, slots=True)
class AnyValue:
    """State without a schema: whatever msgspec can encode."""

    schema: pa.Schema = UNTYPED

    def decode(self, columns: pa.RecordBatch, found: npt.NDArray[np.bool_]) -> list[Any]:
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
        return AnyValue()
    return SingleColumn(schema) if len(schema) == 1 else SeveralColumns(schema)


def tuples_to_columns(rows: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    """Rows as columns of these types; TypeError or ValueError where one does not fit."""
    if not rows:
        return [pa.array([], type=column.type) for column in schema]
    if set(map(type, rows)) & {str, bytes, dict}:
        raise TypeError("a row must be a tuple")
    width = set(map(len, rows))
    if width != {len(schema)}:
        raise ValueError(f"expected {len(schema)} values in a row, got {sorted(width)}")
    parts = zip(*rows, strict=True)
    return [pa.array(list(p), type=c.type) for p, c in zip(parts, schema, strict=True)]
