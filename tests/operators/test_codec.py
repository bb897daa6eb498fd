"""State and output values to columns and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.codec import (
    UNTYPED,
    AnyValue,
    SeveralColumns,
    SingleColumn,
    StateCodec,
    state_codec,
    tuples_to_columns,
)
from tests.operators.columns import EXACT, FLOATS, STRUCT, structs, told_apart

KINDS = {**EXACT, **FLOATS, STRUCT: structs}


def there_and_back(codec: StateCodec, values: list[Any]) -> list[Any]:
    batch = pa.RecordBatch.from_arrays(codec.encode(values), schema=codec.schema)
    return codec.decode(batch, np.array([value is not None for value in values], dtype=np.bool_))


def test_the_schema_chooses_the_codec() -> None:
    one, two = pa.schema([("a", pa.int8())]), pa.schema([("a", pa.int8()), ("b", pa.int8())])
    assert state_codec(one) == SingleColumn(one)
    assert state_codec(two) == SeveralColumns(two)
    assert state_codec(None) == AnyValue(UNTYPED)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(KINDS)), st.data())
def test_state_of_one_column_is_the_value_itself(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=5))
    codec = SingleColumn(pa.schema([("state", kind)]))
    assert told_apart(there_and_back(codec, values)) == told_apart(values)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(list(EXACT)), min_size=2, max_size=3), st.data())
def test_state_of_several_columns_is_a_named_tuple(
    kinds: list[pa.DataType], data: st.DataObject
) -> None:
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    row = st.tuples(*(st.none() | EXACT[kind] for kind in kinds))
    values = data.draw(st.lists(st.none() | row, max_size=5))
    back = there_and_back(SeveralColumns(schema), values)
    assert back == values
    for value in back:
        assert value is None or value.c0 == value[0]


def test_a_tuple_of_nulls_is_a_state_and_none_is_not() -> None:
    codec = SeveralColumns(pa.schema([("a", pa.int8()), ("b", pa.string())]))
    assert there_and_back(codec, [(None, None), None]) == [(None, None), None]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(anything, max_size=5))
def test_state_without_a_schema_is_any_plain_value(values: list[Any]) -> None:
    assert there_and_back(AnyValue(UNTYPED), values) == values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), 1.5),
        (pa.int32(), Decimal("1.5")),
        (pa.int32(), float("nan")),
        (pa.int32(), 2**31),
        (pa.int32(), "1"),
        (pa.int8(), True),
        (pa.string(), 1),
        (pa.float64(), "1.0"),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.decimal128(4, 2), Decimal("100")),
        (pa.date32(), "2020-01-01"),
        (pa.list_(pa.int32()), [1, 1.5]),
        (pa.struct([("n", pa.int32())]), {"n": 1.5}),
        (pa.list_(pa.int32()), 7),
    ],
    ids=str,
)
def test_a_value_that_would_be_changed_does_not_fit(kind: pa.DataType, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        SingleColumn(pa.schema([("state", kind)])).encode([None, value])
    with pytest.raises((TypeError, ValueError)):
        tuples_to_columns([(value,)], pa.schema([("x", kind)]))


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (pa.int32(), 2.0, 2),
        (pa.int64(), np.int32(7), 7),
        (pa.float64(), 3, 3.0),
        (pa.decimal128(6, 2), 3, Decimal("3.00")),
        (pa.list_(pa.int32()), (1, 2.0, None), [1, 2, None]),
        (pa.struct([("n", pa.int32())]), {"n": None}, {"n": None}),
        (pa.timestamp("us", tz="UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None),
    ],
    ids=str,
)
def test_a_value_of_another_type_fits_where_nothing_is_lost(
    kind: pa.DataType, value: Any, kept: Any
) -> None:
    column = tuples_to_columns([(value,)], pa.schema([("x", kind)]))[0]
    assert column.to_pylist() == [value if kept is None else kept]


NOT_NULL = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.int8())])


def test_a_column_that_may_not_be_null_takes_no_null() -> None:
    with pytest.raises(ValueError, match="column a may not be NULL"):
        tuples_to_columns([(1, 1), (None, 1)], NOT_NULL)
    with pytest.raises(ValueError, match="column a may not be NULL"):
        SeveralColumns(NOT_NULL).encode([None, (None, 1)])
    forgotten = SeveralColumns(NOT_NULL).encode([None, (1, None)])
    assert [column.to_pylist() for column in forgotten] == [[None, 1], [None, None]]
    alone = SingleColumn(pa.schema([NOT_NULL.field(0)]))
    assert alone.encode([None, 1])[0].to_pylist() == [None, 1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(1, 2), (1,)], "expected 2 values in a row, got [1, 2]"),
        ([(1, 2, 3)], "expected 2 values in a row, got [3]"),
        (["ab"], "a row must be a tuple"),
        ([b"ab"], "a row must be a tuple"),
        ([{"a": 1, "b": 2}], "a row must be a tuple"),
        ([(1, 2), 5], "has no len()"),
    ],
)
def test_a_row_is_a_tuple_with_a_value_per_column(rows: list[Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as got:
        tuples_to_columns(rows, pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    assert said in str(got.value)


def test_no_rows_are_columns_without_values() -> None:
    columns = tuples_to_columns([], NOT_NULL)
    assert [(column.type, len(column)) for column in columns] == [(pa.int8(), 0), (pa.int8(), 0)]
