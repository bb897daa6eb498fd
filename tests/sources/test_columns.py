"""What fits a schema and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from anabranch.sources.columns import source_column, to_batch

UTC = pa.timestamp("us", tz="UTC")
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([1, None], pa.int32(), [1, None]),
        (range(2), pa.int64(), [0, 1]),
        ((2.0,), pa.int64(), [2]),
        ([1], pa.float64(), [1.0]),
        (np.array([1, 2]), pa.int8(), [1, 2]),
        (np.array([1, 2]), pa.float64(), [1.0, 2.0]),
        (np.array(["a", None], dtype=object), pa.string(), ["a", None]),
        (np.array(["2024-01-01T12"], dtype="datetime64[s]"), UTC, [NOON]),
        ([NOON], UTC, [NOON]),
        ([Decimal("1.50")], pa.decimal128(10, 2), [Decimal("1.50")]),
        ([[1, 2], None], pa.list_(pa.int32()), [[1, 2], None]),
        ([{"x": 1}], pa.struct([("x", pa.int64())]), [{"x": 1}]),
        (pa.array([1, 2]), pa.int16(), [1, 2]),
        (pa.array([None, None]), pa.string(), [None, None]),
        (pa.array(["a"]).dictionary_encode(), pa.string(), ["a"]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.chunked_array([[1], [2, 3]]), pa.int64(), [1, 2, 3]),
        (pa.chunked_array([], pa.int64()), pa.int64(), []),
    ],
)
def test_values_that_fit(values: object, type_: pa.DataType, expected: list[object]) -> None:
    array = source_column(values, pa.field("c", type_))
    assert array.type == type_
    assert array.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1.5], pa.int64()),
        ([[1.5]], pa.list_(pa.int64())),
        ([{"x": 1.5}], pa.struct([("x", pa.int64())])),
        (np.array([1.5]), pa.int64()),
        (np.array([np.float32(1.5)], dtype=object), pa.int64()),
        (pa.array([1.5]), pa.int64()),
        ([300], pa.int8()),
        (np.array([300]), pa.int8()),
        (pa.array([300]), pa.int8()),
        (["1"], pa.int64()),
        (pa.array(["1"]), pa.int64()),
        ([1], pa.string()),
        (pa.array([1]), pa.string()),
        (pa.array([1]), pa.bool_()),
        (pa.array([1]), UTC),
        ([Decimal("1.555")], pa.decimal128(10, 2)),
        ("ab", pa.string()),
        (7, pa.int64()),
        ({"a": 1}, pa.int64()),
    ],
)
def test_values_that_do_not_fit_are_refused_naming_the_column(
    values: object, type_: pa.DataType
) -> None:
    with pytest.raises(ValueError, match="column c does not fit"):
        source_column(values, pa.field("c", type_))


def test_null_is_refused_where_the_schema_says_so() -> None:
    with pytest.raises(ValueError, match="column c has NULLs"):
        source_column([1, None], pa.field("c", pa.int64(), nullable=False))


SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize(
    "data",
    [
        {"v": [1, 2], "k": ["a", "b"]},
        pa.table({"v": pa.array([1, 2], pa.int32()), "k": ["a", "b"]}),
        pa.record_batch({"k": ["a", "b"], "v": [1, 2]}),
    ],
)
def test_columns_are_put_in_order(data: object) -> None:
    batch = to_batch(data, SCHEMA, 2)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"k": ["a"]}, "has no column v"),
        ({"k": ["a"], "v": [1], "w": [1]}, "has a column w that is not in the schema"),
        ({"k": ["a"], "v": [1]}, "column k has 1 rows instead of 2"),
        ({"k": ["a", "b"], "v": [1]}, "column v has 1 rows instead of 2"),
    ],
)
def test_other_columns_or_rows_are_refused(data: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        to_batch(data, SCHEMA, 2)


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="not list"):
        to_batch([("a", 1)], SCHEMA, 1)
