"""The table of aggregate functions: names, arguments, constants and result of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from anabranch.dataflow.aggregates import carrying, results
from anabranch.dataflow.aggregates.constant import (
    ACCURACY,
    DELIMITER,
    FLAG,
    HOW_MANY,
    PERCENTAGE,
    RELATIVE_ERROR,
    Constant,
)
from anabranch.dataflow.aggregates.value import AggregateCall, Carried
from anabranch.dataflow.types.schema import COLLATION
from anabranch.errors import InvalidAggregate

MANY = 1 << 30
"""Any number of arguments."""


class Rule(msgspec.Struct, frozen=True):
    """One aggregate function.

    ``usage`` shows how to call it. ``least`` and ``most`` bound the number of expressions, and
    ``constants`` follow them. ``distinct`` names the function behind ``f(distinct x)``: the same
    one if duplicates do not matter, None if it is not supported. A function that ``keeps_values``
    stores or compares them, so collations matter. One that is ``apart`` cannot be called by its
    name alone, but as ``f(distinct x)`` or ``within group (…)``.
    """

    name: str
    usage: str
    result: results.Result
    aliases: tuple[str, ...] = ()
    least: int = 1
    most: int = 1
    constants: tuple[Constant, ...] = ()
    carrying: carrying.Carrying = carrying.as_given
    distinct: str | None = None
    nullable: bool = True
    keeps_values: bool = False
    apart: bool = False


def _number(name: str, *aliases: str) -> Rule:
    """A function of one number, computed from its moments."""
    return Rule(name, f"{name}(x)", results.double, aliases, carrying=carrying.as_doubles)


def _pair(name: str, carry: carrying.Carrying = carrying.as_doubles) -> Rule:
    """A function of pairs of numbers."""
    return Rule(name, f"{name}(y, x)", results.double, least=2, most=2, carrying=carry)


def _picked(name: str, *aliases: str) -> Rule:
    """A function that picks one row's value; NULL counts as a value by default."""
    return Rule(
        name,
        f"{name}(x) or {name}(x, ignore_nulls)",
        results.same,
        aliases,
        constants=(FLAG,),
        carrying=carrying.with_nulls,
        keeps_values=True,
    )


def _repeatable(
    name: str, result: results.Result, *aliases: str, keeps_values: bool = False
) -> Rule:
    """A function of one value that ignores duplicates."""
    return Rule(name, f"{name}(x)", result, aliases, distinct=name, keeps_values=keeps_values)


_RULES = (
    Rule(
        "count",
        "count(*), count(x) or count(x, y, …)",
        results.bigint,
        least=0,
        most=MANY,
        carrying=carrying.not_null,
        distinct="count_distinct",
        nullable=False,
    ),
    Rule(
        "count_distinct",
        "count(distinct x) or count(distinct x, y, …)",
        results.counted_distinct,
        most=MANY,
        carrying=carrying.together,
        nullable=False,
        keeps_values=True,
        apart=True,
    ),
    Rule(
        "count_if",
        "count_if(condition)",
        results.counted_if,
        carrying=carrying.true_or_null,
        nullable=False,
    ),
    Rule("sum", "sum(x)", results.total, distinct="sum_distinct"),
    Rule("sum_distinct", "sum(distinct x)", results.total, apart=True),
    Rule("avg", "avg(x)", results.mean, ("mean",), distinct="avg_distinct"),
    Rule("avg_distinct", "avg(distinct x)", results.mean, apart=True),
    _repeatable("min", results.extreme, keeps_values=True),
    _repeatable("max", results.extreme, keeps_values=True),
    *(
        Rule(
            name,
            f"{name}(x, y) or {name}(x, y, k)",
            results.by_order,
            least=2,
            most=2,
            constants=(HOW_MANY,),
            keeps_values=True,
        )
        for name in ("min_by", "max_by")
    ),
    _repeatable("bool_and", results.truth, "every"),
    _repeatable("bool_or", results.truth, "any", "some"),
    _repeatable("bit_and", results.bits),
    _repeatable("bit_or", results.bits),
    Rule("bit_xor", "bit_xor(x)", results.bits),
    _number("var_samp", "variance"),
    _number("var_pop"),
    _number("stddev_samp", "stddev", "std"),
    _number("stddev_pop"),
    _number("skewness"),
    _number("kurtosis"),
    _pair("covar_pop"),
    _pair("covar_samp"),
    _pair("corr"),
    Rule(
        "regr_count",
        "regr_count(y, x)",
        results.bigint,
        least=2,
        most=2,
        carrying=carrying.not_null,
        nullable=False,
    ),
    _pair("regr_avgx", carrying.part_of_pair(1)),
    _pair("regr_avgy", carrying.part_of_pair(0)),
    _pair("regr_sxx", carrying.part_of_pair(1)),
    _pair("regr_syy", carrying.part_of_pair(0)),
    _pair("regr_sxy"),
    _pair("regr_slope"),
    _pair("regr_intercept"),
    _pair("regr_r2"),
    _picked("first", "first_value"),
    _picked("last", "last_value"),
    _picked("any_value"),
    Rule(
        "collect_list",
        "collect_list(x)",
        results.listed,
        ("array_agg",),
        distinct="collect_set",
        nullable=False,
        keeps_values=True,
    ),
    Rule(
        "collect_set",
        "collect_set(x)",
        results.set_of,
        distinct="collect_set",
        nullable=False,
        keeps_values=True,
    ),
    *(
        Rule(
            name,
            "listagg(x) or listagg(x, delimiter)",
            results.text,
            aliases,
            constants=(DELIMITER,),
            distinct="listagg_distinct",
            keeps_values=True,
            apart=name != "listagg",
        )
        for name, aliases in (("listagg", ("string_agg",)), ("listagg_distinct", ()))
    ),
    Rule("mode", "mode(x)", results.comparable, constants=(FLAG,), keeps_values=True),
    Rule("median", "median(x)", results.double, carrying=carrying.as_doubles),
    Rule(
        "percentile",
        "percentile(x, percentage)",
        results.percentiles,
        constants=(PERCENTAGE,),
        carrying=carrying.as_doubles,
    ),
    Rule(
        "percentile_disc",
        "percentile_disc(percentage) within group (order by x)",
        results.percentiles,
        constants=(PERCENTAGE,),
        carrying=carrying.as_doubles,
        apart=True,
    ),
    Rule(
        "approx_percentile",
        "approx_percentile(x, percentage) or approx_percentile(x, percentage, accuracy)",
        results.quantiles,
        ("percentile_approx",),
        constants=(PERCENTAGE, ACCURACY),
    ),
    Rule(
        "approx_count_distinct",
        "approx_count_distinct(x) or approx_count_distinct(x, relative_error)",
        results.counted_distinct,
        constants=(RELATIVE_ERROR,),
        carrying=carrying.hashed,
        distinct="approx_count_distinct",
        nullable=False,
        keeps_values=True,
    ),
)
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _RULES}
#: The functions that can be called by name, under all their names.
CALLABLE: Mapping[str, Rule] = {
    name: rule for rule in _RULES if not rule.apart for name in (rule.name, *rule.aliases)
}

#: The functions written ``f(p) within group (order by x)``, and their rules.
WITHIN_GROUP: Mapping[str, str] = {
    "percentile_cont": "percentile",
    "percentile_disc": "percentile_disc",
}

_ROUNDING = frozenset({"sum", "avg", "regr_avgx", "regr_avgy"})
"""Exact in any order, except over floating-point numbers."""

_ALWAYS = frozenset(
    {
        *("min_by", "max_by", "first", "last", "any_value", "collect_list", "listagg"),
        *("var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis"),
        *("covar_pop", "covar_samp", "corr", "regr_sxx", "regr_syy", "regr_sxy"),
        *("regr_slope", "regr_intercept", "regr_r2"),
    }
)


def result_type(
    aggregate: AggregateCall, types: Sequence[pa.DataType | None]
) -> pa.DataType | None:
    """The type of the aggregate's column, as in Spark; None if an argument's type is unknown.

    Raises ``InvalidAggregate`` if the function does not accept the types.

    >>> print(result_type(AggregateCall("sum", ("price",)), [pa.decimal128(10, 2)]))
    decimal128(20, 2)
    """
    rule = RULES[aggregate.function]
    known = tuple(kind for kind in types if kind is not None)
    if len(known) < len(types):
        return pa.int64() if rule.result is results.bigint else None
    return rule.result(aggregate, known)


def carried_columns(aggregate: AggregateCall, types: Sequence[pa.DataType]) -> tuple[Carried, ...]:
    """The columns that rows carry to the operator, for arguments of these types."""
    return RULES[aggregate.function].carrying(aggregate, tuple(types))


def is_nullable(aggregate: AggregateCall) -> bool:
    """Whether the result can be NULL: without values, all but counts and lists are."""
    return RULES[aggregate.function].nullable


def refuse_collated(aggregate: AggregateCall, argument: pa.Field) -> None:
    """Raise ``InvalidAggregate`` if the function would store or compare collated strings."""
    collation = (argument.metadata or {}).get(COLLATION)
    if collation is None or not RULES[aggregate.function].keeps_values:
        return
    raise InvalidAggregate(
        f"{aggregate.function} of a string with collation {collation.decode()}",
        do="State is compared byte by byte: use "
        f"{aggregate.function}({aggregate.arguments[0]} collate UTF8_BINARY).",
    )


def order_matters(function: str, carried: Sequence[pa.DataType]) -> bool:
    """Whether another row order could change the result.

    ``function`` is the name of a rule, ``carried`` the types of its carried columns.

    >>> order_matters("sum", [pa.int64()]), order_matters("sum", [pa.float64()])
    (False, True)
    """
    if function in _ROUNDING:
        return bool(pa.types.is_floating(carried[0]))
    return function in _ALWAYS
