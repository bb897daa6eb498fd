"""Sums, extremes and counts of segments, against plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import Overflow
from anabranch.operators import reduce
from tests.operators.columns import EXACT, FLOATS, UTC, decimals, integers, told_apart

small = settings(max_examples=150, deadline=None)
WHERE = "operator totals, column total"
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def flat(segments: Sequence[Sequence[Any]], kind: pa.DataType) -> tuple[pa.Array, Any]:
    values = [value for segment in segments for value in segment]
    starts = np.cumsum([0, *map(len, segments)])[: len(segments)].astype(np.int64)
    return pa.array(values, type=kind), starts


def segments_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.none() | values, min_size=1, max_size=6), max_size=5)


def some(segment: Sequence[Any]) -> list[Any]:
    return [value for value in segment if value is not None]


def greatness(value: Any) -> Any:
    """What SQL compares: NaN is the greatest, -0.0 less than 0.0."""
    if not isinstance(value, float):
        return value
    return (math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))


@small
@given(st.sampled_from([*EXACT, *FLOATS]), st.data())
def test_counts_are_of_values_that_are_not_null(kind: pa.DataType, data: st.DataObject) -> None:
    segments = data.draw(segments_of({**EXACT, **FLOATS}[kind]))
    column, starts = flat(segments, kind)
    counted = reduce.count(column, starts, len(column))
    assert counted.tolist() == [len(some(segment)) for segment in segments]
    assert reduce.count(None, starts, len(column)).tolist() == [len(s) for s in segments]


@small
@given(st.sampled_from([*EXACT, *FLOATS]), st.data())
def test_extremes_are_those_of_sql(kind: pa.DataType, data: st.DataObject) -> None:
    segments = data.draw(segments_of({**EXACT, **FLOATS}[kind]))
    column, starts = flat(segments, kind)
    for least, choose in ((True, min), (False, max)):
        found = reduce.extreme_of_segments(column, starts, least=least)
        assert found.type == kind
        wanted = [choose(some(s), key=greatness) if some(s) else None for s in segments]
        assert told_apart(found.to_pylist()) == told_apart(wanted)


@small
@given(st.sampled_from([*EXACT, *FLOATS]), st.data())
def test_the_better_of_two_is_that_of_sql(kind: pa.DataType, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(*[st.none() | {**EXACT, **FLOATS}[kind]] * 2), max_size=6))
    left = pa.array([pair[0] for pair in pairs], type=kind)
    right = pa.array([pair[1] for pair in pairs], type=kind)
    for least, choose in ((True, min), (False, max)):
        wanted = [choose(some(p), key=greatness) if some(p) else None for p in pairs]
        for pair in ((left, right), (right, left)):
            found = reduce.extreme_of_two(*pair, least=least)
            assert found.type == kind
            assert told_apart(found.to_pylist()) == told_apart(wanted)


@small
@given(st.sampled_from(INTEGERS), st.data())
def test_sums_of_integers_are_exact_or_refused(kind: pa.DataType, data: st.DataObject) -> None:
    segments = data.draw(segments_of(integers(kind.bit_width)))
    column, starts = flat(segments, kind)
    wanted = [sum(some(segment)) if some(segment) else None for segment in segments]
    whole = reduce.sum_segments(column, starts, reduce.WHOLE_SUM, WHERE)
    assert whole.type == reduce.WHOLE_SUM
    assert whole.to_pylist() == wanted
    if all(value is None or -(2**63) <= value < 2**63 for value in wanted):
        found = reduce.sum_segments(column, starts, pa.int64(), WHERE)
        assert found.type == pa.int64()
        assert found.to_pylist() == wanted
    else:
        with pytest.raises(Overflow):
            reduce.sum_segments(column, starts, pa.int64(), WHERE)


LARGE = 2**62


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([LARGE, LARGE - 1], True),
        ([LARGE, LARGE], False),
        ([-LARGE, -LARGE], True),
        ([-LARGE, -LARGE, -1], False),
        ([2**63 - 1], True),
        ([-(2**63)], True),
        ([2**63 - 1, 2**63 - 1, -(2**63), -(2**63)], True),
        ([2**63 - 1, 2**63 - 1, -(2**63), -(2**63), None, 3], True),
        ([2**63 - 1] * 8 + [-(2**63)] * 7, True),
        ([2**63 - 1] * 9 + [-(2**63)] * 7, False),
    ],
)
def test_a_sum_is_refused_only_when_it_does_not_fit(values: list[int], fits: bool) -> None:
    column, starts = flat([[1], values, [None]], pa.int64())
    if fits:
        wanted = [1, sum(some(values)), None]
        assert reduce.sum_segments(column, starts, pa.int64(), WHERE).to_pylist() == wanted
        return
    with pytest.raises(
        Overflow, match=r"\[step.overflow\] a sum is out of range for bigint"
    ) as got:
        reduce.sum_segments(column, starts, pa.int64(), WHERE)
    assert got.value.where == WHERE
    assert "decimal(38, 0)" in str(got.value)


@small
@given(st.sampled_from([(10, 2), (28, 3), (29, 0), (38, 5)]), st.data())
def test_sums_of_decimals_are_exact_or_refused(shape: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = shape
    kind = pa.decimal128(min(38, precision + 10), scale)
    segments = data.draw(segments_of(decimals(precision, scale)))
    column, starts = flat(segments, pa.decimal128(precision, scale))
    exact = [sum(map(Fraction, some(s))) if some(s) else None for s in segments]
    room = Fraction(10) ** (kind.precision - scale)
    if any(value is not None and abs(value) >= room for value in exact):
        with pytest.raises(Overflow, match=rf"decimal\(38,{scale}\)"):
            reduce.sum_segments(column, starts, kind, WHERE)
        return
    found = reduce.sum_segments(column, starts, kind, WHERE)
    assert found.type == kind
    assert [None if v is None else Fraction(v) for v in found.to_pylist()] == exact


@small
@given(st.sampled_from([pa.float32(), pa.float64()]), st.data())
def test_sums_of_floating_numbers_are_doubles(kind: pa.DataType, data: st.DataObject) -> None:
    eighths = st.integers(-1000, 1000).map(lambda number: number / 8)
    special = st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
    segments = data.draw(segments_of(eighths | special))
    column, starts = flat(segments, kind)
    found = reduce.sum_segments(column, starts, pa.float64(), WHERE)
    assert found.type == pa.float64()
    # Eighths add up without rounding, and Python's sum begins with 0 as Spark's does.
    wanted = [sum(some(segment), start=0.0) if some(segment) else None for segment in segments]
    assert told_apart(found.to_pylist()) == told_apart(wanted)


def test_a_floating_sum_depends_on_its_segment_alone() -> None:
    generator = np.random.default_rng(5)
    mine = generator.normal(scale=1e9, size=1000)
    alone = reduce.sum_segments(pa.array(mine), np.array([0]), pa.float64(), WHERE)
    for before in (1, 2, 3, 7, 64):
        others = generator.normal(size=before)
        column = pa.chunked_array([others, mine, others]).combine_chunks()
        starts = np.array([0, before, before + len(mine)])
        assert reduce.sum_segments(column, starts, pa.float64(), WHERE)[1] == alone[0]


ADDED = [
    (pa.int64(), [1, None, 3, None], [10, 20, None, None], [11, 20, 3, None]),
    (pa.float64(), [0.5, None], [0.25, 1.0], [0.75, 1.0]),
    (pa.decimal128(12, 2), [Decimal(1), None], [Decimal("2.25"), None], [Decimal("3.25"), None]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 2)], [Decimal(1)], [Decimal(10**38 - 1)]),
]


@pytest.mark.parametrize(("kind", "before", "part", "wanted"), ADDED, ids=str)
def test_a_null_adds_nothing(
    kind: pa.DataType, before: list[Any], part: list[Any], wanted: list[Any]
) -> None:
    found = reduce.add_columns(pa.array(before, kind), pa.array(part, kind), WHERE)
    assert found.equals(pa.array(wanted, kind))


@pytest.mark.parametrize(
    ("kind", "before", "part"),
    [
        (pa.int64(), 2**63 - 1, 1),
        (pa.int64(), -(2**63), -1),
        (pa.decimal128(38, 0), Decimal(10**38 - 1), Decimal(1)),
        (pa.decimal128(38, 2), Decimal(-(10**36) + 1), Decimal(-(10**36) + 1)),
        (pa.decimal128(20, 0), Decimal(10**20 - 1), Decimal(1)),
    ],
    ids=str,
)
def test_what_does_not_fit_after_adding_is_refused(
    kind: pa.DataType, before: Any, part: Any
) -> None:
    with pytest.raises(Overflow):
        reduce.add_columns(pa.array([None, before], kind), pa.array([1, part], kind), WHERE)


@pytest.mark.parametrize("kind", [pa.int8(), pa.string(), pa.bool_(), UTC, pa.float32()], ids=str)
def test_no_segments_reduce_to_nothing(kind: pa.DataType) -> None:
    column, starts = flat([], kind)
    assert reduce.count(column, starts, 0).tolist() == []
    for least in (True, False):
        assert reduce.extreme_of_segments(column, starts, least=least).equals(pa.array([], kind))
    if pa.types.is_integer(kind):
        assert reduce.sum_segments(column, starts, pa.int64(), WHERE).equals(
            pa.array([], pa.int64())
        )
