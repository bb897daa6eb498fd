from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.refused import REFUSED
from anabranch.dataflow.aggregates.rules import (
    CALLABLE,
    RULES,
    carried_columns,
    is_nullable,
    refuse_collated,
    result_type,
)
from anabranch.dataflow.aggregates.value import AggregateCall
from anabranch.dataflow.types.schema import COLLATION
from anabranch.errors import InvalidAggregate
from anabranch.operators.aggregates.registry import FUNCTIONS


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("count(*)", AggregateCall("count")),
        (" COUNT ( * ) ", AggregateCall("count")),
        ("count(1)", AggregateCall("count", ("1",))),
        ("count(a, b)", AggregateCall("count", ("a", "b"))),
        ("count(distinct a)", AggregateCall("count_distinct", ("a",))),
        ("count(DISTINCT a, f(b, c))", AggregateCall("count_distinct", ("a", "f(b, c)"))),
        ("sum(DISTINCT(a))", AggregateCall("sum_distinct", ("(a)",))),
        ("avg(distinct a)", AggregateCall("avg_distinct", ("a",))),
        ("min(distinct a)", AggregateCall("min", ("a",))),
        ("sum(all a)", AggregateCall("sum", ("a",))),
        ("sum(a * 2)", AggregateCall("sum", ("a * 2",))),
        ("Max(`unit price`)", AggregateCall("max", ("`unit price`",))),
        ("avg(coalesce(a, 0))", AggregateCall("avg", ("coalesce(a, 0)",))),
        ("mean(a)", AggregateCall("avg", ("a",))),
        ("sum(distinctness)", AggregateCall("sum", ("distinctness",))),
        ("sum(allowance)", AggregateCall("sum", ("allowance",))),
        ("std(a)", AggregateCall("stddev_samp", ("a",))),
        ("any(a)", AggregateCall("bool_or", ("a",))),
        ("min_by(a, b)", AggregateCall("min_by", ("a", "b"), (False,))),
        ("max_by(a, b, 3)", AggregateCall("max_by", ("a", "b"), (3.0,))),
        (
            "percentile_cont(0.5) within group (order by f(a, b) ASC) filter (where c)",
            AggregateCall("percentile", ("f(a, b)",), (0.5,), "c"),
        ),
        (
            "PERCENTILE_DISC(array(0, 1)) WITHIN GROUP(ORDER BY a)",
            AggregateCall("percentile_disc", ("a",), ((0.0, 1.0),)),
        ),
        ("first(a)", AggregateCall("first", ("a",), (False,))),
        ("first_value(a, true)", AggregateCall("first", ("a",), (True,))),
        ("last(a ignore nulls)", AggregateCall("last", ("a",), (True,))),
        ("last(a) IGNORE  NULLS", AggregateCall("last", ("a",), (True,))),
        ("any_value(a) respect nulls", AggregateCall("any_value", ("a",), (False,))),
        ("last(a) filter (where b) ignore nulls", AggregateCall("last", ("a",), (True,), "b")),
        ("listagg(a)", AggregateCall("listagg", ("a",), ("",))),
        ("string_agg(a, ', ')", AggregateCall("listagg", ("a",), (", ",))),
        ("listagg(distinct a, ';')", AggregateCall("listagg_distinct", ("a",), (";",))),
        ("collect_list(distinct a)", AggregateCall("collect_set", ("a",))),
        ("percentile(a, 0.5)", AggregateCall("percentile", ("a",), (0.5,))),
        ("percentile(a, array(0, 1))", AggregateCall("percentile", ("a",), ((0.0, 1.0),))),
        ("percentile_approx(a, 1)", AggregateCall("approx_percentile", ("a",), (1.0, 10000.0))),
        ("approx_percentile(a, 1, 50)", AggregateCall("approx_percentile", ("a",), (1.0, 50.0))),
        ("approx_count_distinct(a, 0.01)", AggregateCall("approx_count_distinct", ("a",), (0.01,))),
        ("count(*) filter (where a > 0)", AggregateCall("count", (), (), "a > 0")),
        ("sum(a)FILTER(WHERE(b))", AggregateCall("sum", ("a",), (), "(b)")),
        (
            "sum(a) filter (where b = ')' and c in (1, 2))",
            AggregateCall("sum", ("a",), (), "b = ')' and c in (1, 2)"),
        ),
    ],
)
def test_known_aggregates_are_read(text: str, aggregate: AggregateCall) -> None:
    assert parse_aggregate(text) == aggregate


@pytest.mark.parametrize(
    ("text", "what", "do"),
    [
        ("sum(a) / count(*)", '"sum(a) / count(*)" is not one aggregate function', "later select"),
        ("a", '"a" is not one aggregate function', "count(*)"),
        ("sum(a) as b", '"sum(a) as b" is not one aggregate function', "its own column"),
        ("sum(a) filter (b)", "is not one aggregate function", "filter (where …)"),
        ("sum(a) filter (where b) + 1", "is not one aggregate function", "later select"),
        ("sum(a) over ()", '"over ()" in "sum(a) over ()" is not supported', "Drop it"),
        ("listagg(a) within group (order by b)", '"within group (order by b)" in', "in row order"),
        (
            "HLL_sketch_agg(a)",
            'aggregate function "HLL_sketch_agg" in "HLL_sketch_agg(a)" is not supported',
            "approx_count_distinct(x)",
        ),
        ("upper(a)", '"upper" in "upper(a)" is not an aggregate function', "stateful_map"),
        ("frobnicate(a)", '"frobnicate" in', "Use one of any, any_value,"),
        ("count_distinct(a)", '"count_distinct" in', "Use one of"),
        ("bit_xor(distinct a)", "asks for distinct values, which bit_xor", "Write bit_xor(x)"),
        ("sum(a ignore nulls)", "has a NULL option, which sum", "Write sum(x)"),
        ("count()", '"count()" has the wrong arguments for count', "Write count(*), count(x)"),
        ("count(a, *)", "has the wrong arguments for count", "count(x)"),
        ("count(distinct *)", "has the wrong arguments for count_distinct", "distinct x, y"),
        ("sum()", '"sum()" has the wrong arguments for sum', "Write sum(x)"),
        ("sum(*)", '"sum(*)" has the wrong arguments for sum', "Write sum(x)"),
        ("max(a, b)", '"max(a, b)" has the wrong arguments for max', "Write max(x)"),
        ("corr(a)", "has the wrong arguments for corr", "Write corr(y, x)"),
        ("sum(a,)", "has the wrong arguments for sum", "Write sum(x)"),
        ("percentile(a)", "has the wrong arguments", "Write percentile(x, percentage)"),
        ("percentile(a, b)", '"b" in "percentile(a, b)" is not a percentage', "Write a literal"),
        ("percentile(a, 1.5)", '"1.5" in', "Write a literal"),
        ("percentile(a, array())", "is not a percentage from 0 to 1", "Write a literal"),
        ("percentile(a, 0.5, 2)", "has the wrong arguments", "Write percentile(x"),
        ("approx_percentile(a, 0.5, 0)", "is not an accuracy", "Write a literal"),
        ("approx_count_distinct(a, 0.001)", "is not a relative error", "Write a literal"),
        ("first(a, b)", "is not true or false", "Write a literal"),
        ("max_by(a, b, 0)", "is not a whole number from 1 to 100000", "Write a literal"),
        ("percentile_cont(0.5)", "does not say what to compute percentile_cont over", "order by x"),
        (
            "percentile_disc(0.5) within group (order by a desc)",
            "does not say what to compute percentile_disc over",
            "ascending",
        ),
        (
            "percentile_cont(0.5) within group (order by a, b)",
            "does not say what to compute percentile_cont over",
            "within group (order by x)",
        ),
        ("listagg(a, b)", "is not a delimiter in quotes", "Write a literal"),
    ],
)
def test_everything_else_is_refused_by_name(text: str, what: str, do: str) -> None:
    with pytest.raises(InvalidAggregate) as caught:
        parse_aggregate(text)
    assert what in caught.value.what
    assert caught.value.do is not None
    assert do in caught.value.do


def test_no_name_is_known_and_refused() -> None:
    assert not set(CALLABLE) & set(REFUSED)


def test_every_rule_has_what_keeps_it() -> None:
    assert set(RULES) == set(FUNCTIONS)


def typed(text: str, *types: pa.DataType) -> Any:
    return result_type(parse_aggregate(text), types)


# The results are those of Spark 4.3 for `select f(x)` over a column of the type.
@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        *(("count", t, pa.int64()) for t in (pa.string(), pa.map_(pa.string(), pa.int8()))),
        *(("sum", t, pa.int64()) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *(("sum", t, pa.float64()) for t in (pa.float32(), pa.float64())),
        ("sum", pa.decimal128(10, 2), pa.decimal128(20, 2)),
        ("sum", pa.decimal128(38, 10), pa.decimal128(38, 10)),
        *(("avg", t, pa.float64()) for t in (pa.int8(), pa.int64(), pa.float32(), pa.float64())),
        ("avg", pa.decimal128(10, 2), pa.decimal128(14, 6)),
        ("avg", pa.decimal128(38, 10), pa.decimal128(38, 14)),
        ("avg", pa.decimal128(38, 36), pa.decimal128(38, 38)),
        *(
            (f, t, t)
            for f in ("min", "max", "first", "any_value", "mode")
            for t in (pa.int8(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(9, 3))
        ),
        ("max", pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC")),
        ("first", pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8())),
        *(("var_samp", t, pa.float64()) for t in (pa.int8(), pa.decimal128(9, 3), pa.float32())),
        *((f, pa.int64(), pa.float64()) for f in ("median", "kurtosis", "stddev_pop")),
        ("bit_xor", pa.int16(), pa.int16()),
        ("every", pa.bool_(), pa.bool_()),
        ("count_if", pa.bool_(), pa.int64()),
        ("approx_count_distinct", pa.string(), pa.int64()),
        (
            "collect_list",
            pa.map_(pa.string(), pa.int8()),
            pa.list_(pa.map_(pa.string(), pa.int8())),
        ),
        ("collect_set", pa.list_(pa.int8()), pa.list_(pa.list_(pa.int8()))),
        ("listagg", pa.string(), pa.string()),
    ],
)
def test_results_have_sparks_types(
    function: str, argument: pa.DataType, result: pa.DataType
) -> None:
    assert typed(f"{function}(x)", argument) == result


def test_constants_decide_between_a_value_and_an_array() -> None:
    assert typed("percentile(x, 0.5)", pa.int32()) == pa.float64()
    assert typed("percentile(x, array(0.5))", pa.int32()) == pa.list_(pa.float64())
    assert typed("approx_percentile(x, 0.5)", pa.date32()) == pa.date32()
    assert typed("approx_percentile(x, array(0.5))", pa.int8()) == pa.list_(pa.int8())


def test_the_result_of_several_arguments_is_that_of_the_right_one() -> None:
    assert typed("max_by(x, y)", pa.string(), pa.int8()) == pa.string()
    assert typed("max_by(x, y, 2)", pa.string(), pa.int8()) == pa.list_(pa.string())
    assert typed("corr(y, x)", pa.int8(), pa.decimal128(9, 2)) == pa.float64()
    assert typed("count(distinct x, y)", pa.string(), pa.int8()) == pa.int64()


def test_an_unknown_argument_leaves_all_but_counts_unknown() -> None:
    for text, known in [("count(x)", True), ("sum(x)", False), ("min_by(x, y)", False)]:
        aggregate = parse_aggregate(text)
        found = result_type(aggregate, [None] * len(aggregate.arguments))
        assert (found == pa.int64()) is known


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
        ("stddev(s)", pa.string(), 'stddev_samp is not defined for "s"'),
        ("bool_or(n)", pa.int8(), 'bool_or is not defined for "n", which is tinyint'),
        ("bit_or(n)", pa.float64(), 'bit_or is not defined for "n", which is double'),
        ("count_if(n)", pa.int8(), 'count_if is not defined for "n", which is tinyint'),
        ("first(n)", pa.null(), 'first is not defined for "n", which is void'),
        ("listagg(n)", pa.int8(), 'listagg is not defined for "n", which is tinyint'),
        ("median(d)", pa.date32(), 'median is not defined for "d", which is date'),
        ("approx_percentile(s, 0.1)", pa.string(), 'approx_percentile is not defined for "s"'),
        (
            "collect_set(m)",
            pa.struct([("a", pa.map_(pa.int8(), pa.int8()))]),
            'collect_set is not defined for "m"',
        ),
        ("mode(m)", pa.list_(pa.map_(pa.int8(), pa.int8())), 'mode is not defined for "m"'),
    ],
)
def test_types_without_a_result_are_refused(text: str, argument: pa.DataType, what: str) -> None:
    with pytest.raises(InvalidAggregate) as caught:
        typed(text, argument)
    assert what in caught.value.what
    assert caught.value.do


@pytest.mark.parametrize(
    ("text", "types", "what"),
    [
        ("corr(a, s)", (pa.int8(), pa.string()), 'corr is not defined for "s", which is string'),
        (
            "max_by(a, m)",
            (pa.int8(), pa.map_(pa.int8(), pa.int8())),
            'max_by is not defined for "m"',
        ),
        ("min_by(n, a)", (pa.null(), pa.int8()), 'min_by is not defined for "n", which is void'),
    ],
)
def test_each_argument_is_looked_at(text: str, types: tuple[pa.DataType, ...], what: str) -> None:
    with pytest.raises(InvalidAggregate) as caught:
        typed(text, *types)
    assert what in caught.value.what


def test_only_counts_and_lists_are_never_null() -> None:
    never = {name for name in RULES if not is_nullable(AggregateCall(name))}
    assert never == {
        *("count", "count_distinct", "count_if", "regr_count", "approx_count_distinct"),
        *("collect_list", "collect_set"),
    }


def test_strings_with_a_collation_are_counted_and_nothing_else() -> None:
    field = pa.field("s", pa.string(), metadata={COLLATION: b"UNICODE_CI"})
    refuse_collated(parse_aggregate("count(s)"), field)
    for text in ("min(s)", "collect_set(s)", "first(s)", "count(distinct s)"):
        with pytest.raises(InvalidAggregate, match="collation UNICODE_CI"):
            refuse_collated(parse_aggregate(text), field)


def squeezed(text: str, *types: pa.DataType) -> list[tuple[str, pa.DataType]]:
    found = carried_columns(parse_aggregate(text), types)
    return [(part.sql.replace("\n", ""), part.type) for part in found]


def test_what_travels_is_computed_by_sql_and_null_where_the_filter_says_no() -> None:
    i, d, b = pa.int32(), pa.float64(), pa.bool_()
    assert squeezed("count(*)") == []
    assert squeezed("count(*) filter (where c)") == [("if((c), (true), null)", b)]
    assert squeezed("count(x)", i) == [("x", i)]
    assert squeezed("count(x, y)", i, i) == [
        ("if((x) is not null and (y) is not null, true, null)", b)
    ]
    assert squeezed("sum(x) filter (where c)", i) == [("if((c), (x), null)", i)]
    assert squeezed("corr(y, x)", i, i) == [("cast((y) as double)", d), ("cast((x) as double)", d)]
    assert squeezed("first(x) filter (where c)", i) == [
        ("if((c), (x), null)", i),
        ("coalesce((c), false)", b),
    ]
    assert squeezed("first(x, true) filter (where c)", i) == [("if((c), (x), null)", i)]
    assert squeezed("count(distinct x, y)", i, d) == [
        (
            "if((x) is not null and (y) is not null, named_struct('c0', (x), 'c1', (y)), null)",
            pa.struct([("c0", i), ("c1", d)]),
        )
    ]
    assert squeezed("approx_count_distinct(x)", i) == [
        ("if((x) is not null, xxhash64((x)), null)", pa.int64())
    ]
    assert squeezed("regr_avgx(y, x)", i, i) == [
        ("if((y) is not null and (x) is not null, cast((x) as double), null)", d)
    ]


def test_a_comment_at_the_end_of_an_expression_ends_with_it() -> None:
    found = carried_columns(parse_aggregate("sum(x -- euros\n) filter (where c)"), [pa.int32()])
    assert found[0].sql == "if((\nc\n), (\nx -- euros\n), null)"
