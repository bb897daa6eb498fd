"""State without a schema as JSON text."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.state_json import json_column, json_text

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.lists(plain))
def test_what_json_can_say_comes_back(values: list[Any]) -> None:
    packed = pa.array([msgspec.msgpack.encode(value) for value in values], type=pa.binary())
    texts = json_column(packed)
    assert texts.type == pa.string()
    assert [json.loads(text) for text in texts.to_pylist()] == values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x00\xff", json.dumps(base64.b64encode(b"\x00\xff").decode())),
        (float("nan"), "null"),
        (float("inf"), "null"),
        ({1: "a"}, '{"1":"a"}'),
        ({(1, "b"): {None: 2}}, '{"[1,\\"b\\"]":{"null":2}}'),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), '"2026-01-02T03:04:05Z"'),
        (msgspec.msgpack.Ext(5, b"x"), '{"code":5,"data":"eA=="}'),
        ([{"deep": msgspec.msgpack.Ext(5, b"x")}], '[{"deep":{"code":5,"data":"eA=="}}]'),
    ],
)
def test_what_json_cannot_say_is_shown_as_near_as_can_be(value: Any, text: str) -> None:
    packed = pa.array([msgspec.msgpack.encode(value), None], type=pa.binary())
    assert json_column(packed).to_pylist() == [text, None]


def test_one_value() -> None:
    assert json_text({"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'
