"""What of each row travels to an aggregate: columns that Catalyst computes before the exchange.

A row that a filter leaves out carries NULL, and its arguments are not evaluated: a division that
the filter guards does not fail. Functions for which NULL is a value like any other carry beside it
whether the row counts.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from anabranch.dataflow.aggregates.value import AggregateCall, Carried, Types

Carrying = Callable[[AggregateCall, Types], tuple[Carried, ...]]


def as_given(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The arguments."""
    pairs = zip(aggregate.arguments, types, strict=True)
    return tuple(_kept(aggregate, text, kind) for text, kind in pairs)


def as_doubles(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The arguments as floating numbers."""
    return tuple(_kept(aggregate, _double(text), pa.float64()) for text in aggregate.arguments)


def not_null(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Something that is not NULL where no argument is NULL; nothing where every row counts."""
    if len(aggregate.arguments) == 1:
        return as_given(aggregate, types)
    if not aggregate.arguments and aggregate.condition is None:
        return ()
    return (_kept(aggregate, _where_all(aggregate, "true"), pa.bool_()),)


def true_or_null(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """True where the argument is true."""
    text = f"if({_own(aggregate.arguments[0])}, true, null)"
    return (_kept(aggregate, text, pa.bool_()),)


def with_nulls(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The argument, and whether its row counts where NULL may be the answer."""
    given = as_given(aggregate, types)
    ignores_nulls = aggregate.parameters[0]
    if aggregate.condition is None or ignores_nulls:
        return given
    return (*given, Carried(f"coalesce({_own(aggregate.condition)}, false)", pa.bool_()))


def hashed(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """Spark's 64-bit hash of the value, which takes -0.0 for 0.0 and knows one NaN."""
    value = _own(aggregate.arguments[0])
    return (_kept(aggregate, f"if({value} is not null, xxhash64({value}), null)", pa.int64()),)


def together(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The arguments as one value, NULL where one of them is."""
    if len(types) == 1:
        return as_given(aggregate, types)
    names = [f"c{place}" for place in range(len(types))]
    parts = [f"'{n}', {_own(t)}" for n, t in zip(names, aggregate.arguments, strict=True)]
    struct = pa.struct(list(zip(names, types, strict=True)))
    text = _where_all(aggregate, f"named_struct({', '.join(parts)})")
    return (_kept(aggregate, text, struct),)


def second_of_pair(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The second argument as a floating number where neither is NULL."""
    return (_kept(aggregate, _where_all(aggregate, _double(aggregate.arguments[1])), pa.float64()),)


def first_of_pair(aggregate: AggregateCall, types: Types) -> tuple[Carried, ...]:
    """The first argument as a floating number where neither is NULL."""
    return (_kept(aggregate, _where_all(aggregate, _double(aggregate.arguments[0])), pa.float64()),)


def _where_all(aggregate: AggregateCall, value: str) -> str:
    if not aggregate.arguments:
        return value
    there = " and ".join(f"{_own(text)} is not null" for text in aggregate.arguments)
    return f"if({there}, {value}, null)"


def _kept(aggregate: AggregateCall, text: str, kind: pa.DataType) -> Carried:
    if aggregate.condition is None:
        return Carried(text, kind)
    return Carried(f"if({_own(aggregate.condition)}, {_own(text)}, null)", kind)


def _double(text: str) -> str:
    return f"cast({_own(text)} as double)"


def _own(text: str) -> str:
    """A text of the user's as part of a larger one; a comment at its end stays harmless."""
    return f"(\n{text}\n)"
