"""Values as integers of the same order."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.order.sortable_ints import from_words, to_words
from tests.operators.columns import EXACT, FLOATS, UTC, column, told_apart

WORDS = [
    kind for kind in EXACT if not (pa.types.is_decimal(kind) or kind in (pa.string(), pa.binary()))
]
KINDS = {**EXACT, **FLOATS}


def rank(value: Any) -> Any:
    """What to sort a value by: -0.0 comes before 0.0."""
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*WORDS, *FLOATS]), st.data())
def test_words_sort_as_their_values_and_lead_back_to_them(
    kind: pa.DataType, data: st.DataObject
) -> None:
    values = data.draw(column(KINDS[kind], kind, 6))
    words = to_words(values)
    assert words is not None
    assert pa.types.is_signed_integer(words.type)
    back = from_words(words, kind)
    assert back.type == kind
    assert told_apart(back.to_pylist()) == told_apart(values.to_pylist())
    pairs = zip(words.to_pylist(), values.to_pylist(), strict=True)
    some = [(word, value) for word, value in pairs if value is not None and str(value) != "nan"]
    assert sorted(some, key=lambda pair: pair[0]) == sorted(some, key=lambda pair: rank(pair[1]))


def test_every_nan_is_the_same_and_greater_than_infinity() -> None:
    odd = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0xFFF8 << 48, 0x7FF1 << 48)]
    words = to_words(pa.array([math.nan, *odd, math.inf]))
    assert words is not None
    nan, one, other, infinity = words.to_pylist()
    assert nan == one == other > infinity


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(10, 2)], ids=str)
def test_some_types_have_no_words(kind: pa.DataType) -> None:
    assert to_words(pa.array([], type=kind)) is None


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.float64(), pa.date32(), UTC], ids=str)
def test_columns_of_nulls_and_of_nothing_stay_what_they_are(kind: pa.DataType) -> None:
    for rows in (0, 2):
        words = to_words(pa.nulls(rows, kind))
        assert words is not None
        assert from_words(words, kind).equals(pa.nulls(rows, kind))
