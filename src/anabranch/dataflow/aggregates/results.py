"""The result types of aggregates, as in Spark, and the argument types they accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from anabranch.dataflow.aggregates.value import AggregateCall, Types
from anabranch.dataflow.types.schema import type_text
from anabranch.dataflow.types.schema_reader import MAX_PRECISION
from anabranch.errors import InvalidAggregate

Result: TypeAlias = Callable[[AggregateCall, Types], pa.DataType]


def bigint(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of a count, over any arguments."""
    return pa.int64()


def total(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of a sum: wider than its values."""
    kind = types[0]
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(MAX_PRECISION, kind.precision + 10), kind.scale)
    if pa.types.is_integer(kind):
        return pa.int64()
    return double(aggregate, types)


def mean(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of a mean: a decimal for decimals, else a double."""
    kind = types[0]
    if pa.types.is_decimal(kind):
        precision, scale = kind.precision + 4, kind.scale + 4
        return pa.decimal128(min(MAX_PRECISION, precision), min(MAX_PRECISION, scale))
    return double(aggregate, types)


def double(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """A double, computed from numbers."""
    for place, kind in enumerate(types):
        if not _is_number(kind):
            raise _undefined(
                aggregate, place, kind, f"cast({aggregate.arguments[place]} as double)"
            )
    return pa.float64()


def extreme(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of the least or greatest value, which must not be nested."""
    if pa.types.is_nested(types[0]):
        raise _undefined(aggregate, 0, types[0], "one of its fields or elements")
    return same(aggregate, types)


def same(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of the argument."""
    if pa.types.is_null(types[0]):
        raise _undefined(aggregate, 0, types[0], "cast(null as int)")
    return types[0]


def by_order(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of the value beside the least or greatest key; an array of it for ``k`` values."""
    comparable(aggregate, types, 1)
    value = same(aggregate, types)
    return pa.list_(value) if aggregate.parameters[0] else value


def comparable(aggregate: AggregateCall, types: Types, place: int = 0) -> pa.DataType:
    """The type of an argument whose values can be compared."""
    if _holds_map(types[place]):
        raise _undefined(aggregate, place, types[place], "its entries: map_entries(…)")
    if pa.types.is_null(types[place]):
        raise _undefined(aggregate, place, types[place], "cast(null as int)")
    return types[place]


def _only(fits: Callable[[pa.DataType], bool], instead: str) -> Result:
    """The type of the argument, which must fit; ``instead`` says what to write, ``{}`` the text."""

    def result(aggregate: AggregateCall, types: Types) -> pa.DataType:
        if not fits(types[0]):
            raise _undefined(aggregate, 0, types[0], instead.format(aggregate.arguments[0]))
        return types[0]

    return result


truth = _only(pa.types.is_boolean, "a condition")
bits = _only(pa.types.is_integer, "cast({} as bigint)")
text = _only(pa.types.is_string, "cast({} as string)")


def counted_if(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of a count of the rows for which a condition is true."""
    truth(aggregate, types)
    return pa.int64()


def counted_distinct(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of a count of distinct values, which must be comparable."""
    for place in range(len(types)):
        comparable(aggregate, types, place)
    return pa.int64()


def listed(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """An array of all values."""
    return pa.list_(same(aggregate, types))


def set_of(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """An array of the distinct values."""
    return pa.list_(comparable(aggregate, types))


def percentiles(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """A double, or an array of them for an array of percentages."""
    return _per_percentage(aggregate, double(aggregate, types))


def quantiles(aggregate: AggregateCall, types: Types) -> pa.DataType:
    """The type of the values, or an array of it for an array of percentages."""
    kind = types[0]
    if not (_is_number(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        raise _undefined(aggregate, 0, kind, f"cast({aggregate.arguments[0]} as double)")
    return _per_percentage(aggregate, kind)


def _per_percentage(aggregate: AggregateCall, kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind) if isinstance(aggregate.parameters[0], tuple) else kind


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_struct(kind):
        return any(_holds_map(part.type) for part in kind)
    return bool(pa.types.is_list(kind)) and _holds_map(kind.value_type)


def _undefined(
    aggregate: AggregateCall, place: int, kind: pa.DataType, instead: str
) -> InvalidAggregate:
    arguments = [*aggregate.arguments[:place], instead, *aggregate.arguments[place + 1 :]]
    return InvalidAggregate(
        f'{aggregate.function} is not defined for "{aggregate.arguments[place]}", '
        f"which is {type_text(kind)}",
        do=f"Use e.g. {aggregate.function}({', '.join(arguments)}).",
    )
