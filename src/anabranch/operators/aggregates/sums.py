"""``count``, ``sum`` and ``avg``, exact except for floating numbers."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.port import Function, Segments, State


class Sum(Function):
    """A sum, kept in the result type. The state of all functions here is columns to add up."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The sum."""
        return [("", self.spec.result)]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's sum."""
        kind = self.fields()[0][1]
        return [reduce.sum_segments(step.values, step.shape.starts, kind, step.where)]

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Add both."""
        pairs = zip(before, after, strict=True)
        return [reduce.add_columns(one, other, where) for one, other in pairs]


class Count(Sum):
    """``count``, ``count_if``, ``regr_count``: values that are not NULL; rows without a column."""

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's rows."""
        return [_count(step)]


class Mean(Sum):
    """A mean, kept as sum and count."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The sum, in a type that does not overflow, and the count."""
        return [("sum", mean_sum_kind(self.spec.kinds[0])), ("count", pa.int64())]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's sum and count."""
        return [*super().reduce(step), _count(step)]

    def result(self, state: State, where: str) -> pa.Array:
        """Sum over count."""
        return divide_sums(state[0], state[1], self.spec.result, where)


def _count(step: Segments) -> pa.Array:
    column = step.columns[0] if step.columns else None
    return pa.array(reduce.count(column, step.shape.starts, step.shape.rows), type=pa.int64())


def mean_sum_kind(argument: pa.DataType) -> pa.DataType:
    """The type of the sum kept for a mean: exact, except for floating numbers."""
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(38, argument.precision + 10), argument.scale)
    return reduce.WHOLE_SUM if pa.types.is_integer(argument) else pa.float64()


def divide_sums(sums: pa.Array, counts: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Sum over count; NULL if there are no values."""
    some = pc.if_else(pc.greater(counts, 0), counts, pa.scalar(None, counts.type))
    if pa.types.is_decimal(kind):
        return _decimal_mean(sums, some, kind, where)
    return pc.divide(sums.cast(pa.float64()), some.cast(pa.float64()))


def _decimal_mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """The exact mean, rounded half up to the result's scale, as in Spark."""
    places = decimal.Decimal(1).scaleb(-kind.scale)
    with decimal.localcontext(prec=80, rounding=decimal.ROUND_HALF_UP):
        means = [
            None if s is None or n is None else (s / n).quantize(places)
            for s, n in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
        ]
    try:
        return pa.array(means, type=kind)
    except pa.ArrowInvalid as error:
        raise reduce.overflow_error("a mean", kind, where) from error
