"""``aggregate``: incremental SQL aggregates per key, computed in Arrow.

A step's rows are grouped by key, each group is reduced to one row, and that is combined with the
key's state. The output is the new value of every key that the step changed. The aggregate functions
and their state are in ``operators/aggregates``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.aggregates.rules import carried_columns, order_matters
from anabranch.dataflow.aggregates.value import Parameter
from anabranch.dataflow.durations import Clock
from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.types.typed import TypedAggregate as TypedColumn
from anabranch.operators.aggregates.port import Function, FunctionSpec, Segments, Shape
from anabranch.operators.aggregates.registry import make
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.output_times import latest_times
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges, state_expiry
from anabranch.records.bins import Mask
from anabranch.records.layout import nullable
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_chunk
from anabranch.runs.rows import Groups, group_keys


class Argument(msgspec.Struct, frozen=True):
    """An input column of an aggregate: its name, its type, and the SQL that computes it."""

    name: str
    kind: pa.DataType
    sql: str


class AggregateColumn(msgspec.Struct, frozen=True):
    """One output column: its function, with arguments, constants and result type.

    ``label`` is the function with its constants; it identifies the meaning of the state.
    """

    name: str
    function: str
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]
    kind: pa.DataType
    label: str

    def make_function(self) -> Function:
        """The function that computes the column."""
        kinds = tuple(argument.kind for argument in self.arguments)
        return make(FunctionSpec(self.function, kinds, self.kind, self.parameters))

    def state_fields(self) -> list[pa.Field]:
        """Its state per key; ``/`` separates the names from those of other columns."""
        return [
            pa.field(f"{self.name}/{part}" if part else self.name, kind)
            for part, kind in self.make_function().fields()
        ]


class Aggregate(msgspec.Struct, frozen=True):
    """The operator: its columns and its output schema.

    If rows carry their order, functions see them in that order, and an output row has the smallest
    order of its group. It has the latest of their event times, and counts as made by notifications
    if all of them were. ``clock`` is what the time-to-live goes by.
    """

    name: str
    columns: tuple[AggregateColumn, ...]
    output: pa.Schema
    ttl_ns: int | None = None
    clock: Clock = "step"

    @property
    def state(self) -> pa.Schema:
        """The state columns."""
        return pa.schema([f for column in self.columns for f in column.state_fields()])

    def run(self, rows: Rows, state: KeyedEntries) -> tuple[Rows, StateChanges]:
        """Group and reduce the rows; return the new values and the changed state."""
        assert rows.hashes is not None
        assert rows.keys is not None
        groups = group_keys(rows.hashes, rows.keys)
        held = state.find(groups.hashes, groups.keys)
        columns, results = self._merge(rows, groups, held.values.columns)
        values = pa.RecordBatch.from_arrays(columns, schema=self.state)
        nothing_forgotten = np.zeros(len(groups), dtype=np.bool_)
        times = None
        if rows.times is not None:
            times = latest_times(rows.times[groups.order], groups.starts)
        expiry = state_expiry(self.ttl_ns, self.clock, state.now_ns, times, len(groups))
        changed = KeyChanges(groups.hashes, groups.keys, values, nothing_forgotten, expiry=expiry)
        return self._output(rows, groups, results, times), StateChanges(changed, held.present)

    def _merge(
        self, rows: Rows, groups: Groups, prior: Sequence[pa.Array]
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """The new state columns of all aggregates, and their results."""
        if not len(groups):
            return list(prior), [pa.array([], column.kind) for column in self.columns]
        order = self._segment_order(rows, groups)
        shape = Shape(groups.starts, len(order))
        state: list[pa.Array] = []
        results: list[pa.Array] = []
        for column in self.columns:
            function = column.make_function()
            arguments = tuple(take_argument(rows.values, a, order) for a in column.arguments)
            where = f"operator {self.name}, column {column.name}"
            before = prior[len(state) : len(state) + len(function.fields())]
            part = function.reduce(Segments(shape, arguments, where))
            after = function.merge(before, part, where)
            state.extend(after)
            results.append(function.result(after, where))
        return state, results

    def _segment_order(self, rows: Rows, groups: Groups) -> Int64s:
        """The places of the rows, group by group, and in their order within a group."""
        places = rows.order.permutation() if rows.order is not None else None
        if places is None:
            return groups.order
        return places[np.argsort(groups.group_of_row[places], kind="stable")]

    def _output(
        self, rows: Rows, groups: Groups, results: list[pa.Array], times: Int64s | None
    ) -> Rows:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip([*groups.keys.columns, *results], self.output, strict=True)
        ]
        order = None
        if rows.order is not None:
            order = rows.order.smallest(groups.order, groups.starts)
        keys = pa.Table.from_batches([groups.keys])
        values = pa.Table.from_arrays(columns, schema=self.output)
        fired = None if rows.fired is None else _all_fired(rows.fired, groups)
        return Rows(values, groups.hashes, keys, order, times, fired)


def _all_fired(fired: Mask, groups: Groups) -> Mask:
    """Of each group, whether notifications made all its rows."""
    if not len(groups):
        return fired[:0]
    every: Mask = np.logical_and.reduceat(fired[groups.order], groups.starts)
    return every


def aggregate_columns(typed: Typed, node: int) -> tuple[AggregateColumn, ...]:
    """The columns of an aggregate node, for its operator."""
    return tuple(
        _column(place, column) for place, column in enumerate(typed.nodes[node].aggregates)
    )


def _column(place: int, column: TypedColumn) -> AggregateColumn:
    assert column.field is not None
    aggregate = column.aggregate
    carried = carried_columns(
        aggregate, [kind for kind in column.argument_types if kind is not None]
    )
    arguments = tuple(
        Argument(f"a{place}_{number}" if number else f"a{place}", part.type, part.sql)
        for number, part in enumerate(carried)
    )
    return AggregateColumn(
        column.name,
        aggregate.function,
        arguments,
        aggregate.parameters,
        column.field.type,
        aggregate.label,
    )


def late_arguments(row: pa.Schema) -> list[Argument]:
    """The columns that rows carry to an aggregate whose late rows go somewhere: all they have."""
    return [Argument(f"late{i}", field.type, quote(field.name)) for i, field in enumerate(row)]


def late_values(values: pa.Table, row: pa.Schema) -> pa.Table:
    """The columns of a row again, from what an aggregate got of it."""
    columns = [values.column(f"late{i}") for i in range(len(row))]
    return pa.Table.from_arrays(columns, names=row.names)


def depends_on_order(column: AggregateColumn) -> bool:
    """Whether the order of rows can change the result."""
    return order_matters(column.function, [argument.kind for argument in column.arguments])


def take_argument(values: pa.Table, argument: Argument, order: Int64s) -> pa.Array:
    """A column in the order of the segments, in its state type."""
    column = one_chunk(values.column(argument.name)).take(pa.array(order))
    kind = nullable(argument.kind)
    return column if column.type == kind else column.cast(kind)
