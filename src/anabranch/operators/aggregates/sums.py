"""``sum`` and ``avg``, exact but for floating numbers."""

from __future__ import annotations

import decimal
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.port import FunctionSpec, Segments, State


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum, kept in the type that is shown."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The sum."""
        return [("", self.given.result)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Add the step's sum."""
        part = reduce.sum_segments(step.values, step.shape.starts, self.given.result, step.where)
        return [reduce.add_columns(before[0], part, step.where)]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The sum."""
        return kept[0]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, kept as sum and count."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The sum, in a type that does not overflow, and the number of values."""
        return [("sum", mean_sum_kind(self.given.kinds[0])), ("count", pa.int64())]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Add the step's sum and count."""
        part = reduce.sum_segments(step.values, step.shape.starts, before[0].type, step.where)
        counts = reduce.count(step.values, step.shape.starts, step.shape.rows)
        return [
            reduce.add_columns(before[0], part, step.where),
            reduce.add_columns(before[1], pa.array(counts, type=pa.int64()), step.where),
        ]

    def shown(self, kept: State, where: str) -> pa.Array:
        """Sum over count."""
        return divide_sums(kept[0], kept[1], self.given.result, where)


def mean_sum_kind(argument: pa.DataType) -> pa.DataType:
    """The type in which the sum for a mean is kept: exact, but for floating numbers."""
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(38, argument.precision + 10), argument.scale)
    return reduce.WHOLE_SUM if pa.types.is_integer(argument) else pa.float64()


def divide_sums(sums: pa.Array, counts: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Sum over count; NULL where there was no value."""
    some = pc.if_else(pc.greater(counts, 0), counts, pa.scalar(None, counts.type))
    if pa.types.is_decimal(kind):
        return _decimal_mean(sums, some, kind, where)
    return pc.divide(sums.cast(pa.float64()), some.cast(pa.float64()))


def _decimal_mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Exact, rounded half up to the result's scale, as Spark does."""
    places = decimal.Decimal(1).scaleb(-kind.scale)
    with decimal.localcontext(prec=80, rounding=decimal.ROUND_HALF_UP):
        means = [
            None if s is None or n is None else (s / n).quantize(places)
            for s, n in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
        ]
    try:
        return pa.array(means, type=kind)
    except pa.ArrowInvalid as error:
        raise reduce.left_range("a mean", kind, where) from error
