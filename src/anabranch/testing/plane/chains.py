"""What happens to rows between two tasks, as ``plan/sql.py`` has it, without Spark.

Chains are read once, when a data plane is made. What nobody here understands is refused then.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA, UNTIMED, untimed_reason
from anabranch.dataflow.graph import (
    GraphNode,
    KeyByNode,
    SelectNode,
    SplitNode,
    WhereNode,
    WithColumnsNode,
    label,
)
from anabranch.dataflow.sql.sql_text import quote
from anabranch.errors import InvalidDataflow, Problem
from anabranch.operators.dead_letter import as_json
from anabranch.operators.rows import Rows
from anabranch.plan.physical import Edge, Physical, TimeAssignment, UnionBranch, UntimedRows
from anabranch.task.event_times import bounded_times, has_time, row_times
from anabranch.task.program import Program
from anabranch.testing.plane.outside_sources import refused_source
from anabranch.testing.plane.plain_columns import plain_columns
from anabranch.testing.plane.plain_sql import (
    NotPlain,
    PlainValue,
    Values,
    plain_condition,
    plain_value,
)

PlainNode: TypeAlias = (
    WhereNode | SplitNode | SelectNode | WithColumnsNode | KeyByNode | UnionBranch | UntimedRows
)
Change: TypeAlias = Callable[[Rows], Rows]


@dataclass(frozen=True, slots=True)
class Chains:
    """The changes on every edge of a program, by its place, in their order.

    Event times are not among the changes: they may depend on the clock of a step.
    """

    changes: dict[str, tuple[Change | TimeAssignment, ...]]

    @classmethod
    def of(cls, program: Program) -> Chains:
        """Read all chains; ``InvalidDataflow`` lists what would need Spark."""
        physical = program.physical
        problems: dict[str, Problem] = {}
        for transform in physical.transforms:
            operator = label(physical.graph, physical.graph.node(transform.id))
            problems[operator] = Problem(operator, "it needs Spark", _ADVICE)
        for source in physical.sources():
            refused = refused_source(source)
            if refused is not None:
                problems[refused.operator] = refused
        read = {}
        for level in physical.levels:
            for edge in level.inputs:
                read[edge.place] = tuple(_changes(physical, edge, problems))
        if problems:
            raise InvalidDataflow(physical.graph.name, list(problems.values()))
        return cls(read)

    def run(self, edge: Edge, rows: Rows, clock_us: int) -> Rows:
        """The rows of an edge's producer as they come to its consumer."""
        for change in self.changes[edge.place]:
            rows = _changed(change, edge, rows, clock_us)
        return rows

    def timed(self, edge: Edge, rows: Rows, clock_us: int) -> Rows:
        """The rows of an edge's producer right where they get their times."""
        for change in self.changes[edge.place]:
            rows = _changed(change, edge, rows, clock_us)
            if isinstance(change, TimeAssignment):
                break
        return rows


_ADVICE = "Use plain columns and constants, or run this dataflow on Spark."


def hashes_of(keys: pa.Table) -> np.ndarray[Any, Any]:
    """A hash of each key, spread over all bins."""
    rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    small = [zlib.crc32(repr(row).encode()) for row in rows]
    return (np.array(small, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)


def _changed(change: Change | TimeAssignment, edge: Edge, rows: Rows, clock_us: int) -> Rows:
    if not isinstance(change, TimeAssignment):
        return change(rows)
    if change.node.on_error == "dead-letter":
        rows = rows.take(np.flatnonzero(has_time(change, rows.values)))
    if not edge.timed:
        return rows
    if change.told:
        assert rows.times is not None
        return replace(rows, times=bounded_times(change, rows.times, clock_us))
    return replace(rows, times=row_times(change, rows.values, clock_us))


def _changes(
    physical: Physical, edge: Edge, problems: dict[str, Problem]
) -> Iterator[Change | TimeAssignment]:
    schema = physical.schemas[edge.producer]
    for node in edge.chain:
        if isinstance(node, TimeAssignment):
            yield node
            continue
        given = schema if isinstance(node, KeyByNode) else physical.schemas[node.id]
        plain = node.node if isinstance(node, UnionBranch | UntimedRows) else node
        try:
            yield _change(node, edge, schema, given)
        except NotPlain as error:
            _refuse(physical, plain, error, problems)
        schema = given
    if edge.arguments is not None:
        try:
            yield _projected([plain_value(schema, text) for _, text in edge.arguments], edge)
        except NotPlain as error:
            _refuse(physical, physical.graph.node(edge.consumer), error, problems)


def _refuse(
    physical: Physical, node: GraphNode, error: NotPlain, problems: dict[str, Problem]
) -> None:
    operator = label(physical.graph, node)
    problems[operator] = Problem(operator, f'"{error.text}" cannot be used: {error}', _ADVICE)


def _change(node: PlainNode, edge: Edge, schema: pa.Schema, given: pa.Schema) -> Change:
    """What one operator does to rows of ``schema``, which have the columns ``given`` after it."""
    match node:
        case WhereNode() | SplitNode():
            conditions = (node.condition,) if isinstance(node, WhereNode) else node.conditions
            *before, own = [plain_condition(schema, text) for text in conditions]
            return _filtered(before, own)
        case UnionBranch():
            return _selected(_aligned(node, schema, given), given)
        case SelectNode():
            parts = [plain_columns(schema, None, text) for text in node.expressions]
            return _selected([value for part in parts for value in part], given)
        case WithColumnsNode():
            made = {name.lower(): text for name, text in node.columns}
            texts = [made.get(name.lower(), quote(name)) for name in given.names]
            return _selected([plain_value(schema, text) for text in texts], given)
        case UntimedRows():
            return _untimed(node, schema)
        case KeyByNode():
            return _keyed([plain_value(schema, text) for _, text in node.keys], edge.keys)


def _aligned(branch: UnionBranch, schema: pa.Schema, given: pa.Schema) -> list[PlainValue]:
    """The union's columns: those of this input by name, its tag or side, NULL for the rest."""
    known = {branch.renamed(field.name).lower(): field.name for field in schema}
    mark, value = branch.mark or ("", None)
    return [
        _constant(value, field)
        if field.name.lower() == mark.lower()
        else plain_value(schema, quote(known[field.name.lower()]))
        if field.name.lower() in known
        else _constant(None, field)
        for field in given
    ]


def _constant(value: str | int | None, field: pa.Field) -> PlainValue:
    scalar = pa.scalar(value, field.type)
    return PlainValue(field, lambda table: pa.repeat(scalar, table.num_rows))


def _filtered(before: Sequence[PlainValue], own: PlainValue) -> Change:
    """Keep the rows for which a condition is true, and none of those before it."""

    def change(rows: Rows) -> Rows:
        kept = _is_true(own, rows.values)
        for each in before:
            kept &= ~_is_true(each, rows.values)
        return rows.take(np.flatnonzero(kept))

    return change


def _is_true(condition: PlainValue, table: pa.Table) -> np.ndarray[Any, Any]:
    return np.asarray(pc.fill_null(condition.of(table), False))


def _selected(values: Sequence[PlainValue], given: pa.Schema) -> Change:
    return lambda rows: replace(rows, values=_table(values, rows.values, given))


def _keyed(values: Sequence[PlainValue], keys: pa.Schema) -> Change:
    """Compute the key beside the row; rows go where it is from now on."""

    def change(rows: Rows) -> Rows:
        made = _table(values, rows.values, keys)
        return replace(rows, keys=made, hashes=hashes_of(made))

    return change


def _untimed(untimed: UntimedRows, schema: pa.Schema) -> Change:
    """Keep the rows without a time, as dead letters."""
    time = plain_value(schema, quote(untimed.node.column))

    def change(rows: Rows) -> Rows:
        kept = rows.take(np.flatnonzero(pc.is_null(time.of(rows.values))))
        letters = [
            dict(
                dict.fromkeys(DEAD_LETTER_SCHEMA.names),
                operator=untimed.source,
                kind=UNTIMED,
                row=as_json(row),
                error=untimed_reason(untimed.node.column),
            )
            for row in kept.values.to_pylist()
        ]
        return replace(kept, values=pa.Table.from_pylist(letters, DEAD_LETTER_SCHEMA))

    return change


def _projected(values: Sequence[PlainValue], edge: Edge) -> Change:
    """Compute what an aggregate gets; a row of nothing counts too."""
    columns = edge.columns
    if not values:
        return lambda rows: replace(rows, values=pa.table({"_": pa.nulls(len(rows))}))
    return lambda rows: replace(rows, values=_table(values, rows.values, columns))


def _table(values: Sequence[PlainValue], table: pa.Table, given: pa.Schema) -> pa.Table:
    columns = [_cast(v.of(table), field) for v, field in zip(values, given, strict=True)]
    return pa.Table.from_arrays(columns, schema=given)


def _cast(values: Values, field: pa.Field) -> Values:
    return values if values.type == field.type else values.cast(field.type)
