"""Column types of the product, each with values of its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

UTC = pa.timestamp("us", tz="UTC")
NTZ = pa.timestamp("us")


def integers(bits: int) -> st.SearchStrategy[int]:
    edge = 2 ** (bits - 1)
    return st.sampled_from([0, 1, -1, edge - 1, -edge]) | st.integers(-edge, edge - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    unscaled = st.sampled_from([0, 1, -1, largest, -largest]) | st.integers(-largest, largest)
    return unscaled.map(lambda number: Decimal((number < 0, digits(number), -scale)))


def digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamp_ntz has no zone
instants = st.datetimes(EPOCH - dt.timedelta(36500), EPOCH + dt.timedelta(73000))

#: Everything that compares exactly: key types.
EXACT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "0", "a", "aaaaaaaaaaaaaaab", "é"]) | st.text(max_size=40),
    pa.binary(): st.sampled_from([b"", b"\0", b"\0\0"]) | st.binary(max_size=40),
    pa.date32(): st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    UTC: instants.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    NTZ: instants,
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(38, 5): decimals(38, 5),
}

FLOATS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(width=64),
}

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])

structs = st.fixed_dictionaries(
    {"a": st.none() | integers(32), "b": st.none() | st.text(max_size=3)}
)

KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {**EXACT, STRUCT: structs}


def column(
    values: st.SearchStrategy[Any], kind: pa.DataType, size: int
) -> st.SearchStrategy[pa.Array]:
    """Arrays of so many values, some of them NULL."""
    cells = st.lists(st.none() | values, min_size=size, max_size=size)
    return cells.map(lambda some: pa.array(some, type=kind))


def told_apart(values: Sequence[Any]) -> list[Any]:
    """The values for a comparison that tells -0.0 from 0.0 and takes NaN for NaN."""
    return [repr(value) if isinstance(value, float) else value for value in values]
