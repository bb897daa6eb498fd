"""The columns that each row carries to an aggregate, computed by Catalyst before the exchange.

A row that the filter rejects carries NULL, and its arguments are not evaluated: a division that the
filter guards cannot fail. Functions that treat NULL as a value also carry whether the row counts.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from anabranch.dataflow.aggregates.value import AggregateCall, Carried, Types
from anabranch.dataflow.sql.sql_text import parenthesize

Carrying = Callable[[AggregateCall, Types], tuple[Carried, ...]]


def as_given(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry the arguments unchanged."""
    pairs = zip(aggregate.arguments, types, strict=True)
    return tuple(_filtered(aggregate, text, kind) for text, kind in pairs)


def as_doubles(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry the arguments as doubles."""
    return tuple(_filtered(aggregate, _double(text), pa.float64()) for text in aggregate.arguments)


def not_null(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry a column that is NULL if any argument is; carry nothing if every row counts."""
    if len(aggregate.arguments) == 1:
        return as_given(aggregate, types)
    if not aggregate.arguments and aggregate.condition is None:
        return ()
    return (_filtered(aggregate, _where_all(aggregate, "true"), pa.bool_()),)


def true_or_null(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry true if the argument is true, else NULL."""
    text = f"if({parenthesize(aggregate.arguments[0])}, true, null)"
    return (_filtered(aggregate, text, pa.bool_()),)


def with_nulls(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry the argument, and if NULL can be the result, whether the row counts."""
    arguments = as_given(aggregate, types)
    ignores_nulls = aggregate.parameters[0]
    if aggregate.condition is None or ignores_nulls:
        return arguments
    counts = f"coalesce({parenthesize(aggregate.condition)}, false)"
    return (*arguments, Carried(counts, pa.bool_()))


def hashed(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry Spark's 64-bit hash of the value: -0.0 equals 0.0, and all NaNs are one."""
    value = parenthesize(aggregate.arguments[0])
    return (_filtered(aggregate, f"if({value} is not null, xxhash64({value}), null)", pa.int64()),)


def together(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Carry the arguments as one struct, NULL if any of them is."""
    if len(types) == 1:
        return as_given(aggregate, types)
    names = [f"c{place}" for place in range(len(types))]
    parts = [f"'{n}', {parenthesize(t)}" for n, t in zip(names, aggregate.arguments, strict=True)]
    struct = pa.struct(list(zip(names, types, strict=True)))
    text = _where_all(aggregate, f"named_struct({', '.join(parts)})")
    return (_filtered(aggregate, text, struct),)


def part_of_pair(place: int) -> Carrying:
    """Carry one argument of a pair as a double, NULL if either is."""

    def carry(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
        value = _where_all(aggregate, _double(aggregate.arguments[place]))
        return (_filtered(aggregate, value, pa.float64()),)

    return carry


def _where_all(aggregate: AggregateCall, value: str) -> str:
    if not aggregate.arguments:
        return value
    present = " and ".join(f"{parenthesize(text)} is not null" for text in aggregate.arguments)
    return f"if({present}, {value}, null)"


def _filtered(aggregate: AggregateCall, text: str, kind: pa.DataType) -> Carried:
    if aggregate.condition is None:
        return Carried(text, kind)
    return Carried(f"if({parenthesize(aggregate.condition)}, {parenthesize(text)}, null)", kind)


def _double(text: str) -> str:
    return f"cast({parenthesize(text)} as double)"
