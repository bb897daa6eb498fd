"""``aggregate``: SQL aggregates per key, kept up to date and grouped in Arrow.

A step's rows are grouped by key, each group is reduced to one row, and that is added to the key's
state. The output is the key and the new value of every key that the step changed. What is kept of
each function is in ``operators/aggregates``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.aggregates import Parameter, carried_columns, order_matters
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.types.typed import TypedAggregate as TypedColumn
from anabranch.operators.aggregates.port import Function, FunctionSpec, Segments, Shape
from anabranch.operators.aggregates.registry import make
from anabranch.operators.control.messaging import Messaged
from anabranch.operators.rows import Changes, KeyedEntries, Rows
from anabranch.records.layout import nullable
from anabranch.runs.changes import Changed
from anabranch.runs.rows import Groups, group_keys

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Argument:
    """A column that travels to an aggregate: its name, its type, and the SQL that makes it."""

    name: str
    kind: pa.DataType
    sql: str


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One output column: the function, what travels to it, its constants and the result's type.

    ``label`` says what the state means: the function with its constants.
    """

    name: str
    function: str
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]
    kind: pa.DataType
    label: str

    def kept(self) -> Function:
        """What is kept of it, and how."""
        kinds = tuple(argument.kind for argument in self.arguments)
        return make(FunctionSpec(self.function, kinds, self.kind, self.parameters))

    def state_fields(self) -> list[pa.Field]:
        """What is kept of it per key; ``/`` keeps the names apart from those of other columns."""
        return [
            pa.field(f"{self.name}/{part}" if part else self.name, kind)
            for part, kind in self.kept().fields()
        ]


@dataclass(frozen=True, slots=True)
class Aggregate(Messaged):
    """The operator: its columns and what its output looks like.

    Where the rows come with their order, functions that depend on it see them in it, and an output
    row has the smallest order of its group.
    """

    name: str
    columns: tuple[AggregateColumn, ...]
    output: pa.Schema
    ttl_ns: int | None = None

    @property
    def state(self) -> pa.Schema:
        """The state columns."""
        return pa.schema([f for column in self.columns for f in column.state_fields()])

    def run(self, rows: Rows, state: KeyedEntries) -> tuple[Rows, Changes]:
        """Group, reduce and add to the state; give the new values and the changed state."""
        assert rows.hashes is not None
        assert rows.keys is not None
        groups = group_keys(rows.hashes, rows.keys)
        held = state.find(groups.hashes, groups.keys)
        kept, shown = self._advance(rows, groups, held.values.columns)
        values = pa.RecordBatch.from_arrays(kept, schema=self.state)
        nothing_forgotten = np.zeros(len(groups), dtype=np.bool_)
        expiry = None
        if self.ttl_ns is not None:
            expiry = pa.array(np.full(len(groups), state.now_ns + self.ttl_ns, dtype=np.int64))
        changed = Changed(groups.hashes, groups.keys, values, nothing_forgotten, expiry=expiry)
        return self._output(rows, groups, shown), Changes(changed, held.present)

    def _advance(
        self, rows: Rows, groups: Groups, prior: Sequence[pa.Array]
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """The new state columns of all aggregates, and the values they show."""
        if not len(groups):
            return list(prior), [pa.array([], column.kind) for column in self.columns]
        order = self._segment_order(rows, groups)
        shape = Shape(groups.starts, len(order))
        kept: list[pa.Array] = []
        shown: list[pa.Array] = []
        for column in self.columns:
            function = column.kept()
            taken = tuple(_taken(rows.values, a, order) for a in column.arguments)
            where = f"operator {self.name}, column {column.name}"
            before = prior[len(kept) : len(kept) + len(function.fields())]
            after = function.advance(before, Segments(shape, taken, where))
            kept.extend(after)
            shown.append(function.shown(after, where))
        return kept, shown

    def _segment_order(self, rows: Rows, groups: Groups) -> Int64s:
        """The rows' places, group by group; within one in the rows' order where that matters."""
        places = rows.order.permutation() if rows.order is not None else None
        if places is None:
            return groups.order
        return places[np.argsort(groups.group_of_row[places], kind="stable")]

    def _output(self, rows: Rows, groups: Groups, shown: list[pa.Array]) -> Rows:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip([*groups.keys.columns, *shown], self.output, strict=True)
        ]
        order = None
        if rows.order is not None:
            order = rows.order.smallest(groups.order, groups.starts)
        keys = pa.Table.from_batches([groups.keys])
        return Rows(pa.Table.from_arrays(columns, schema=self.output), groups.hashes, keys, order)


def aggregate_columns(typed: Typed, node: int) -> tuple[AggregateColumn, ...]:
    """An aggregate's columns as its operator wants them."""
    return tuple(
        _column(place, column) for place, column in enumerate(typed.nodes[node].aggregates)
    )


def _column(place: int, column: TypedColumn) -> AggregateColumn:
    assert column.field is not None
    aggregate = column.aggregate
    travelling = carried_columns(
        aggregate, [kind for kind in column.argument_types if kind is not None]
    )
    arguments = tuple(
        Argument(f"a{place}_{number}" if number else f"a{place}", part.type, part.sql)
        for number, part in enumerate(travelling)
    )
    return AggregateColumn(
        column.name,
        aggregate.function,
        arguments,
        aggregate.parameters,
        column.field.type,
        aggregate.label,
    )


def depends_on_order(column: AggregateColumn) -> bool:
    """Whether rows in another order could give another result."""
    return order_matters(column.function, [argument.kind for argument in column.arguments])


def _taken(values: pa.Table, argument: Argument, order: Int64s) -> pa.Array:
    """A column in the order of the segments, in the type that state has."""
    joined = values.column(argument.name).combine_chunks()
    array = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    taken = array.take(pa.array(order))
    kind = nullable(argument.kind)
    return taken if taken.type == kind else taken.cast(kind)
