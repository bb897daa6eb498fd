"""The aggregate functions that a region keeps up to date, and the types they give.

One aggregate is one function of one expression. The types are Spark's own, so that a running sum
and a batch ``select sum(…)`` over the same rows can be compared column by column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from anabranch.dataflow.schema import COLLATION, type_text
from anabranch.dataflow.sql_text import Call, argument_count, single_call
from anabranch.dataflow.type_names import MAX_PRECISION
from anabranch.errors import InvalidAggregate


class AggregateFunction(StrEnum):
    """The functions, by their SQL name."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate function and the SQL expression it is over; ``None`` for ``count(*)``."""

    function: AggregateFunction
    argument: str | None


_FUNCTIONS = {str(function): function for function in AggregateFunction} | {
    "mean": AggregateFunction.AVG
}
_KNOWN = "count(*), count(x), sum(x), min(x), max(x) and avg(x)"


def parse_aggregate(text: str) -> Aggregate:
    """The aggregate that a text such as ``"sum(amount * 2)"`` asks for.

    Raises ``InvalidAggregate``, naming the function, for anything but one call of a known one.

    >>> parse_aggregate("MEAN(amount)")
    Aggregate(function=<AggregateFunction.AVG: 'avg'>, argument='amount')
    """
    call = single_call(text)
    if call is None:
        raise InvalidAggregate(
            f'"{text}" is not one aggregate function',
            do="Give each function a column of its own and combine them with select after it; "
            f"there are {_KNOWN}.",
        )
    function = _FUNCTIONS.get(call.name.lower())
    if function is None:
        raise InvalidAggregate(
            f'aggregate function "{call.name}" in "{text}" is not supported',
            do=f"Use one of {_KNOWN}, or keep the state yourself with stateful_map.",
        )
    if function is AggregateFunction.COUNT and call.argument == "*":
        return Aggregate(function, None)
    _check_argument(call, function, text)
    return Aggregate(function, call.argument)


def _check_argument(call: Call, function: AggregateFunction, text: str) -> None:
    if re.match(r"distinct\b", call.argument, re.IGNORECASE):
        raise InvalidAggregate(
            f'"{text}" asks for distinct values, which are not supported',
            do="Key by the values first, or keep them yourself with stateful_map.",
        )
    if argument_count(call.argument) != 1 or call.argument == "*":
        wanted = "count(*) or count(x)" if function is AggregateFunction.COUNT else f"{function}(x)"
        raise InvalidAggregate(
            f'"{text}" does not have one argument', do=f"Write {wanted}, with one expression."
        )


def result_type(aggregate: Aggregate, argument: pa.DataType | None) -> pa.DataType:
    """The type of the aggregate's column, as in Spark, given the type of its argument.

    ``argument`` is not looked at for ``count``. Raises ``InvalidAggregate`` for a type that the
    function is not defined for.

    >>> total = parse_aggregate("sum(price)")
    >>> print(result_type(total, pa.decimal128(10, 2)))
    decimal128(20, 2)
    """
    function = aggregate.function
    if function is AggregateFunction.COUNT:
        return pa.int64()
    if argument is None:
        raise TypeError(f"{function} needs the type of its argument")
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        return _extreme_type(aggregate, argument)
    if pa.types.is_decimal(argument):
        more_digits, more_scale = (10, 0) if function is AggregateFunction.SUM else (4, 4)
        return pa.decimal128(
            min(MAX_PRECISION, argument.precision + more_digits),
            min(MAX_PRECISION, argument.scale + more_scale),
        )
    if pa.types.is_integer(argument):
        return pa.int64() if function is AggregateFunction.SUM else pa.float64()
    if pa.types.is_floating(argument):
        return pa.float64()
    raise _refused(aggregate, argument, f"{function}(cast({aggregate.argument} as double))")


def refuse_collated(aggregate: Aggregate, argument: pa.Field) -> None:
    """Raise ``InvalidAggregate`` for the least or greatest of strings that have a collation."""
    collation = (argument.metadata or {}).get(COLLATION)
    ordered = aggregate.function in (AggregateFunction.MIN, AggregateFunction.MAX)
    if ordered and collation is not None:
        raise InvalidAggregate(
            f"{aggregate.function} of a string with collation {collation.decode()}",
            do="State is compared byte by byte: use "
            f"{aggregate.function}({aggregate.argument} collate UTF8_BINARY).",
        )


def _extreme_type(aggregate: Aggregate, argument: pa.DataType) -> pa.DataType:
    if pa.types.is_nested(argument):
        instead = f"{aggregate.function} of one of its fields or elements"
        raise _refused(aggregate, argument, instead)
    if pa.types.is_null(argument):
        raise _refused(aggregate, argument, f"{aggregate.function}(cast(null as int))")
    return argument


def _refused(aggregate: Aggregate, argument: pa.DataType, instead: str) -> InvalidAggregate:
    return InvalidAggregate(
        f'{aggregate.function} is not defined for "{aggregate.argument}", '
        f"which is {type_text(argument)}",
        do=f"Use e.g. {instead}.",
    )


def is_nullable(aggregate: Aggregate) -> bool:
    """Whether the column may hold NULL: all but counts, for a key whose values are all NULL."""
    return aggregate.function is not AggregateFunction.COUNT
