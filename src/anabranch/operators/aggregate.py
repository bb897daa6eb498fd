"""``aggregate``: SQL aggregates per key, kept up to date and grouped in Arrow.

A step's rows are grouped by key, each group is reduced to one row, and that is added to the key's
state. The output is the key and the new value of every key that the step changed.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.dataflow.aggregates import AggregateFunction
from anabranch.dataflow.typed import Typed
from anabranch.operators import reduce
from anabranch.operators.rows import Changes, KeyedState, Rows
from anabranch.state.changed import Changed
from anabranch.state.rows import Groups, group_keys

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One output column: the function, the value column it is over, and the types.

    ``argument`` is None for ``count(*)``. ``kind`` is the type of the result.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    argument_kind: pa.DataType | None
    kind: pa.DataType

    def state_fields(self) -> list[pa.Field]:
        """What is kept of it per key; ``/`` keeps the names apart from those of other columns."""
        if self.function is AggregateFunction.AVG:
            return [
                pa.field(f"{self.name}/sum", _sum_kind(self.argument_kind)),
                pa.field(f"{self.name}/count", pa.int64()),
            ]
        return [pa.field(self.name, self.kind)]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The operator: its columns and what its output looks like.

    Where the rows come with their order, floating sums are taken in it, and an output row has the
    smallest order of its group.
    """

    name: str
    columns: tuple[AggregateColumn, ...]
    output: pa.Schema

    @property
    def state(self) -> pa.Schema:
        """The state columns."""
        return pa.schema([f for column in self.columns for f in column.state_fields()])

    def run(self, rows: Rows, state: KeyedState) -> tuple[Rows, Changes]:
        """Group, reduce and add to the state; give the new values and the changed state."""
        assert rows.hashes is not None
        assert rows.keys is not None
        groups = group_keys(rows.hashes, rows.keys)
        found, prior = state.lookup(groups.hashes, groups.keys)
        order = self._segment_order(rows, groups)
        kept: list[pa.Array] = []
        shown: list[pa.Array] = []
        for column in self.columns:
            before = [prior.column(len(kept) + i) for i in range(len(column.state_fields()))]
            after, value = _advance(column, rows.values, order, groups, before, self.name)
            kept.extend(after)
            shown.append(value)
        values = pa.RecordBatch.from_arrays(kept, schema=self.state)
        nothing_forgotten = np.zeros(len(groups), dtype=np.bool_)
        changed = Changed(groups.hashes, groups.keys, values, nothing_forgotten)
        return self._output(rows, groups, shown), Changes(changed, found)

    def _segment_order(self, rows: Rows, groups: Groups) -> Int64s:
        """The rows' places, group by group; within one in the rows' order where that matters."""
        places = rows.order.permutation() if rows.order is not None else None
        if places is None:
            return groups.order
        return places[np.argsort(groups.group_of_row[places], kind="stable")]

    def _output(self, rows: Rows, groups: Groups, shown: list[pa.Array]) -> Rows:
        columns = [*groups.keys.columns, *shown]
        order = None
        if rows.order is not None:
            order = rows.order.smallest(groups.order, groups.starts)
        keys = pa.Table.from_batches([groups.keys])
        return Rows(pa.Table.from_arrays(columns, schema=self.output), groups.hashes, keys, order)


def argument_name(place: int) -> str:
    """The column in which the argument of an aggregate's ``place``-th column travels."""
    return f"a{place}"


def aggregate_columns(typed: Typed, node: int) -> tuple[AggregateColumn, ...]:
    """An aggregate's columns as its operator wants them."""
    columns = []
    for place, column in enumerate(typed.aggregates(node)):
        assert column.field is not None
        argument = None if column.aggregate.argument is None else argument_name(place)
        columns.append(
            AggregateColumn(
                column.name,
                column.aggregate.function,
                argument,
                column.argument_type,
                column.field.type,
            )
        )
    return tuple(columns)


def depends_on_order(column: AggregateColumn) -> bool:
    """Whether rows in another order could give another result: sums of floating numbers."""
    adds = column.function in (AggregateFunction.SUM, AggregateFunction.AVG)
    return adds and column.argument_kind is not None and pa.types.is_floating(column.argument_kind)


def _advance(
    column: AggregateColumn,
    values: pa.Table,
    order: Int64s,
    groups: Groups,
    before: list[pa.Array],
    operator: str,
) -> tuple[list[pa.Array], pa.Array]:
    """The new state columns of one aggregate and the value it shows."""
    taken = None if column.argument is None else _taken(values, column.argument, order)
    where = f"operator {operator}, column {column.name}"
    match column.function:
        case AggregateFunction.COUNT:
            new = _added(before[0], _counted(taken, groups, len(order)), where)
            return [new], new
        case AggregateFunction.SUM:
            assert taken is not None
            part = reduce.total(taken, groups.starts, column.kind, where)
            new = _added(before[0], part, where)
            return [new], new
        case AggregateFunction.MIN | AggregateFunction.MAX:
            assert taken is not None
            lower = column.function is AggregateFunction.MIN
            part = (reduce.least if lower else reduce.greatest)(taken, groups.starts)
            new = _better(before[0], part, lower)
            return [new], new
        case AggregateFunction.AVG:
            assert taken is not None
            kind = before[0].type
            sums = _added(before[0], reduce.total(taken, groups.starts, kind, where), where)
            counts = _added(before[1], _counted(taken, groups, len(order)), where)
            return [sums, counts], _mean(sums, counts, column.kind)


def _taken(values: pa.Table, name: str, order: Int64s) -> pa.Array:
    joined = values.column(name).combine_chunks()
    array = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    return array.take(pa.array(order))


def _counted(column: pa.Array | None, groups: Groups, rows: int) -> pa.Array:
    return pa.array(reduce.count(column, groups.starts, rows), type=pa.int64())


def _sum_kind(argument: pa.DataType | None) -> pa.DataType:
    if argument is not None and pa.types.is_decimal(argument):
        return pa.decimal128(min(38, argument.precision + 10), argument.scale)
    return pa.float64()


def _added(before: pa.Array, part: pa.Array, where: str) -> pa.Array:
    """The sum, where a NULL adds nothing."""
    if pa.types.is_integer(part.type):
        sizes = [np.abs(_floats(before)), np.abs(_floats(part))]
        reduce.check_range(np.add(*sizes), where)
    if before.null_count == len(before):
        return part
    both = pc.add(before, part).cast(part.type)
    if before.null_count or part.null_count:
        return pc.coalesce(both, before, part)
    return both


def _floats(array: pa.Array) -> npt.NDArray[np.float64]:
    filled = pc.fill_null(array, 0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False).astype(np.float64)


def _better(before: pa.Array, part: pa.Array, lower: bool) -> pa.Array:
    """The lesser or greater of two values, where a NULL never wins and NaN is the greatest."""
    if pa.types.is_floating(part.type):
        return _better_float(before, part, lower)
    choose: Callable[..., pa.Array] = pc.min_element_wise if lower else pc.max_element_wise
    return choose(before, part, skip_nulls=True)


def _better_float(before: pa.Array, part: pa.Array, lower: bool) -> pa.Array:
    left = before.to_numpy(zero_copy_only=False)
    right = part.to_numpy(zero_copy_only=False)
    choose: Callable[..., npt.NDArray[Any]] = np.fmin if lower else np.maximum
    chosen = pa.array(choose(left, right), type=part.type)
    if before.null_count == 0 and part.null_count == 0:
        return chosen
    both = pc.and_(before.is_valid(), part.is_valid())
    return pc.if_else(both, chosen, pc.coalesce(before, part))


def _mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Sum over count; NULL where there was no value."""
    some = pc.if_else(pc.greater(counts, 0), counts, pa.scalar(None, counts.type))
    if pa.types.is_decimal(kind):
        return _decimal_mean(sums, some, kind)
    return pc.divide(sums, pc.cast(some, pa.float64()))


def _decimal_mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Exact, rounded half up to the result's scale, as Spark does."""
    places = decimal.Decimal(1).scaleb(-kind.scale)
    with decimal.localcontext(prec=80, rounding=decimal.ROUND_HALF_UP):
        means = [
            None if s is None or n is None else (s / n).quantize(places)
            for s, n in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
        ]
    return pa.array(means, type=kind)
