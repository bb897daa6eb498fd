from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.dataflow.aggregates import (
    Aggregate,
    AggregateFunction,
    is_nullable,
    parse_aggregate,
    result_type,
)
from anabranch.errors import InvalidAggregate

F = AggregateFunction


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("count(*)", Aggregate(F.COUNT, None)),
        (" COUNT ( * ) ", Aggregate(F.COUNT, None)),
        ("count(1)", Aggregate(F.COUNT, "1")),
        ("count(a)", Aggregate(F.COUNT, "a")),
        ("sum(a * 2)", Aggregate(F.SUM, "a * 2")),
        ("min(at)", Aggregate(F.MIN, "at")),
        ("Max(`unit price`)", Aggregate(F.MAX, "`unit price`")),
        ("avg(coalesce(a, 0))", Aggregate(F.AVG, "coalesce(a, 0)")),
        ("mean(a)", Aggregate(F.AVG, "a")),
        ("sum(distinctness)", Aggregate(F.SUM, "distinctness")),
    ],
)
def test_known_aggregates_are_read(text: str, aggregate: Aggregate) -> None:
    assert parse_aggregate(text) == aggregate


@pytest.mark.parametrize(
    ("text", "what", "do"),
    [
        ("sum(a) / count(*)", '"sum(a) / count(*)" is not one aggregate function', "select after"),
        ("a", '"a" is not one aggregate function', "count(*)"),
        ("sum(a) as b", '"sum(a) as b" is not one aggregate function', "column of its own"),
        (
            "median(a)",
            'aggregate function "median" in "median(a)" is not supported',
            "stateful_map",
        ),
        ("Collect_List(a)", 'function "Collect_List" in', "stateful_map"),
        ("count(distinct a)", '"count(distinct a)" asks for distinct values', "Key by the values"),
        ("sum(DISTINCT(a))", "asks for distinct values", "stateful_map"),
        ("count()", '"count()" does not have one argument', "Write count(*) or count(x)"),
        ("count(a, b)", '"count(a, b)" does not have one argument', "count(x)"),
        ("sum()", '"sum()" does not have one argument', "Write sum(x)"),
        ("sum(*)", '"sum(*)" does not have one argument', "Write sum(x)"),
        ("max(a, b)", '"max(a, b)" does not have one argument', "Write max(x)"),
    ],
)
def test_everything_else_is_refused_by_name(text: str, what: str, do: str) -> None:
    with pytest.raises(InvalidAggregate) as caught:
        parse_aggregate(text)
    assert what in caught.value.what
    assert caught.value.do is not None
    assert do in caught.value.do


# The results are those of Spark 4.3 for `select f(x)` over a column of the type.
@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        *((F.COUNT, t, pa.int64()) for t in (None, pa.string(), pa.map_(pa.string(), pa.int8()))),
        *((F.SUM, t, pa.int64()) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *((F.SUM, t, pa.float64()) for t in (pa.float32(), pa.float64())),
        (F.SUM, pa.decimal128(10, 2), pa.decimal128(20, 2)),
        (F.SUM, pa.decimal128(38, 10), pa.decimal128(38, 10)),
        *((F.AVG, t, pa.float64()) for t in (pa.int8(), pa.int64(), pa.float32(), pa.float64())),
        (F.AVG, pa.decimal128(10, 2), pa.decimal128(14, 6)),
        (F.AVG, pa.decimal128(38, 10), pa.decimal128(38, 14)),
        (F.AVG, pa.decimal128(38, 36), pa.decimal128(38, 38)),
        *(
            (f, t, t)
            for f in (F.MIN, F.MAX)
            for t in (pa.int8(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(9, 3))
        ),
        (F.MAX, pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC")),
    ],
)
def test_results_have_sparks_types(
    function: AggregateFunction, argument: pa.DataType | None, result: pa.DataType
) -> None:
    assert result_type(Aggregate(function, "x"), argument) == result


@pytest.mark.parametrize(
    ("text", "argument", "what"),
    [
        ("sum(s)", pa.string(), 'sum is not defined for "s", which is string'),
        ("avg(b)", pa.bool_(), 'avg is not defined for "b", which is boolean'),
        ("sum(d)", pa.date32(), 'sum is not defined for "d", which is date'),
        ("sum(n)", pa.null(), 'sum is not defined for "n", which is void'),
        ("min(n)", pa.null(), 'min is not defined for "n", which is void'),
        ("max(xs)", pa.list_(pa.int32()), 'max is not defined for "xs", which is array<int>'),
        ("min(s)", pa.struct([("a", pa.int8())]), "which is struct<a:tinyint>"),
        ("sum(i)", pa.duration("us"), "which is duration[us]"),
    ],
)
def test_types_without_a_result_are_refused(text: str, argument: pa.DataType, what: str) -> None:
    with pytest.raises(InvalidAggregate) as caught:
        result_type(parse_aggregate(text), argument)
    assert what in caught.value.what
    assert caught.value.do


def test_only_counts_are_never_null() -> None:
    assert [is_nullable(Aggregate(f, "x")) for f in F] == [False, True, True, True, True]
