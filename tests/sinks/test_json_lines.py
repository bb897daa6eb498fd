"""JSON lines: every type by hand, and any nested value read back by an independent reader."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.sinks.json_lines import encode_json_lines

UTC = pa.timestamp("us", tz="UTC")
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
LEAP_DAY = dt.date(2024, 2, 29)
YEAR_10000 = 253_402_300_800_000_000


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, False]), ['{"c":true}', '{"c":false}']),
        (pa.array([-128, 127], pa.int8()), ['{"c":-128}', '{"c":127}']),
        (pa.array([2**63 - 1, -(2**63)]), [f'{{"c":{2**63 - 1}}}', f'{{"c":{-(2**63)}}}']),
        (pa.array([0.1, -0.0]), ['{"c":0.1}', '{"c":-0.0}']),
        (pa.array([1e22, 1e-7]), ['{"c":1e22}', '{"c":1e-7}']),
        (
            pa.array([math.nan, math.inf, -math.inf, 1.5, None]),
            ['{"c":"NaN"}', '{"c":"Infinity"}', '{"c":"-Infinity"}', '{"c":1.5}', "{}"],
        ),
        (pa.array([0.1, math.inf, None], pa.float32()), ['{"c":0.1}', '{"c":"Infinity"}', "{}"]),
        (
            pa.array([Decimal("1.50"), Decimal("-12345678901234567890.12")], pa.decimal128(38, 2)),
            ['{"c":1.50}', '{"c":-12345678901234567890.12}'],
        ),
        (pa.array(['a"b\\', "x\ny\r", "\u00e9\u2028\U0001f600", ""]), [
            '{"c":"a\\"b\\\\"}', '{"c":"x\\ny\\r"}', '{"c":"\u00e9\u2028\U0001f600"}', '{"c":""}'
        ]),
        (pa.array([b"\xff\x00a", b""]), ['{"c":"/wBh"}', '{"c":""}']),
        (pa.array([LEAP_DAY, dt.date(1, 1, 1)]), ['{"c":"2024-02-29"}', '{"c":"0001-01-01"}']),
        (
            pa.array([0, 1_704_164_645_123_456, -1], pa.int64()).cast(UTC),
            [
                '{"c":"1970-01-01T00:00:00.000000Z"}',
                '{"c":"2024-01-02T03:04:05.123456Z"}',
                '{"c":"1969-12-31T23:59:59.999999Z"}',
            ],
        ),
        (
            pa.array([1_704_164_645_123_456], pa.int64()).cast(BERLIN),
            ['{"c":"2024-01-02T03:04:05.123456Z"}'],
        ),
        (
            pa.array([1_704_164_645_123_456], pa.int64()).cast(pa.timestamp("us")),
            ['{"c":"2024-01-02T03:04:05.123456"}'],
        ),
        (pa.array([YEAR_10000], pa.int64()).cast(UTC), ['{"c":"10000-01-01T00:00:00.000000Z"}']),
        (pa.array([[1, None], [], None]), ['{"c":[1,null]}', '{"c":[]}', "{}"]),
        (
            pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64())),
            ['{"c":{"a":1,"b":null}}', '{"c":{}}', "{}"],
        ),
        (
            pa.array([{"x": 1, "y": None}, {"x": None, "y": None}, None],
                     pa.struct({"x": pa.int64(), "y": pa.string()})),
            ['{"c":{"x":1}}', '{"c":{}}', "{}"],
        ),
        (pa.array([], pa.string()), []),
        (pa.array([None, None], pa.float64()), ["{}", "{}"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)  # fmt: skip
def test_values_are_printed_as_spark_reads_them(array: pa.Array, expected: list[str]) -> None:
    text = encode_json_lines(pa.table({"c": array})).to_pybytes().decode()
    assert text == "".join(line + "\n" for line in expected)


def test_columns_keep_their_order_and_chunks_their_rows() -> None:
    table = pa.table({"z": pa.chunked_array([[1, 2], [], [3]], pa.int64()), "a": ["x", None, "y"]})
    assert encode_json_lines(table).to_pybytes() == b'{"z":1,"a":"x"}\n{"z":2}\n{"z":3,"a":"y"}\n'


def test_pyarrow_reads_the_same_table_back() -> None:
    schema = pa.schema(
        {
            "b": pa.bool_(),
            "i": pa.int64(),
            "d": pa.float64(),
            "s": pa.string(),
            "t": UTC,
            "l": pa.list_(pa.struct({"x": pa.int64()})),
        }
    )
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 123456, dt.UTC)
    rows: list[dict[str, Any]] = [
        {
            "b": True,
            "i": 2**53 + 1,
            "d": 0.1,
            "s": "é",
            "t": at,
            "l": [{"x": 1}, {"x": None}, None],
        },
        dict.fromkeys(schema.names),
        {"b": False, "i": -1, "d": 1e300, "s": "", "t": at, "l": []},
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    # Arrow's reader makes nothing of an all-NULL row's empty object but NULLs, as Spark's does.
    read = pa.json.read_json(
        io.BytesIO(encode_json_lines(table).to_pybytes()),
        parse_options=pa.json.ParseOptions(explicit_schema=schema),
    )
    assert read.to_pylist() == rows


# ------------------------------------------------------------------------------------ any value

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.decimal128(20, 3): st.decimals(
        min_value=-(10**16), max_value=10**16, places=3, allow_nan=False
    ),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
    UTC: st.datetimes(timezones=st.just(dt.UTC)),
    pa.timestamp("us"): st.datetimes(),
}


def nested(depth: int) -> st.SearchStrategy[pa.DataType]:
    leaf = st.sampled_from(list(LEAVES))
    if depth == 0:
        return leaf
    inner = nested(depth - 1)
    return st.one_of(
        leaf,
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
        ),
    )


def value_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in LEAVES:
        made = LEAVES[kind]
    elif pa.types.is_list(kind):
        made = st.lists(value_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        made = st.dictionaries(st.text(max_size=3), value_of(kind.item_type), max_size=3).map(
            lambda pairs: list(pairs.items())
        )
    else:
        made = st.fixed_dictionaries({f.name: value_of(f.type) for f in kind.fields})
    return st.none() | made


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind = draw(nested(2))
    return kind, draw(st.lists(value_of(kind), max_size=5))


def parsed(kind: pa.DataType, found: Any) -> Any:  # noqa: PLR0911
    """Turn what Python's own JSON reader found into the value it stands for."""
    if found is None:
        return None
    if pa.types.is_list(kind):
        return [parsed(kind.value_type, item) for item in found]
    if pa.types.is_map(kind):
        return [(key, parsed(kind.item_type, item)) for key, item in found.items()]
    if pa.types.is_struct(kind):
        assert None not in found.values()
        return {f.name: parsed(f.type, found.get(f.name)) for f in kind.fields}
    if pa.types.is_binary(kind):
        return base64.b64decode(found, validate=True)
    if pa.types.is_date32(kind):
        return dt.date.fromisoformat(found)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(found)
    if pa.types.is_decimal(kind):
        return Decimal(found)
    if pa.types.is_float32(kind):
        return float(np.float32(found))
    return float(found) if pa.types.is_float64(kind) else found


@settings(max_examples=150, deadline=None)
@given(column=columns(), start=st.integers(0, 2), cut=st.integers(0, 4))
def test_any_nested_value_is_read_back(
    column: tuple[pa.DataType, list[Any]], start: int, cut: int
) -> None:
    kind, values = column
    whole = pa.array(values, kind)
    # Slices and several chunks: offsets of nested arrays then do not start at zero.
    chunks = [whole[start : start + cut], whole[start + cut :]]
    table = pa.table({"c": pa.chunked_array(chunks, kind)})
    text = encode_json_lines(table).to_pybytes().decode()
    rows = [json.loads(line, parse_float=str) for line in text.split("\n")[:-1]]
    assert [parsed(kind, row.get("c")) for row in rows] == values[start:]
