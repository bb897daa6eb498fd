"""``aggregate``: SQL aggregates per key, kept up to date and grouped in Arrow.

A step's rows are grouped by key, each group is reduced to one row, and that is added to the key's
state. The output is the key and the new value of every key that the step changed.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass

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
                pa.field(f"{self.name}/sum", _mean_sum_kind(self.argument_kind)),
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
            new = reduce.added(before[0], _counted(taken, groups, len(order)), where)
            return [new], new
        case AggregateFunction.SUM:
            assert taken is not None
            part = reduce.total(taken, groups.starts, column.kind, where)
            new = reduce.added(before[0], part, where)
            return [new], new
        case AggregateFunction.MIN:
            assert taken is not None
            new = reduce.lesser(before[0], reduce.least(taken, groups.starts))
            return [new], new
        case AggregateFunction.MAX:
            assert taken is not None
            new = reduce.greater(before[0], reduce.greatest(taken, groups.starts))
            return [new], new
        case AggregateFunction.AVG:
            assert taken is not None
            part = reduce.total(taken, groups.starts, before[0].type, where)
            sums = reduce.added(before[0], part, where)
            counts = reduce.added(before[1], _counted(taken, groups, len(order)), where)
            return [sums, counts], _mean(sums, counts, column.kind, where)


def _taken(values: pa.Table, name: str, order: Int64s) -> pa.Array:
    joined = values.column(name).combine_chunks()
    array = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    return array.take(pa.array(order))


def _counted(column: pa.Array | None, groups: Groups, rows: int) -> pa.Array:
    return pa.array(reduce.count(column, groups.starts, rows), type=pa.int64())


def _mean_sum_kind(argument: pa.DataType | None) -> pa.DataType:
    """The type in which the sum for a mean is kept: exact, but for floating numbers."""
    if argument is not None and pa.types.is_decimal(argument):
        return pa.decimal128(min(38, argument.precision + 10), argument.scale)
    if argument is not None and pa.types.is_integer(argument):
        return reduce.WHOLE_SUM
    return pa.float64()


def _mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
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
