"""The SQL between two levels: chains, key hash and route.

All edges share one table, and every edge's chain runs over it. Guards keep an expression off the
rows of other edges, whose NULLs could make it fail. The SQL depends only on the dataflow and the
seats, so all steps share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from anabranch.dataflow.dead_letters import untimed_letters
from anabranch.dataflow.graph import KeyByNode, SelectNode, SplitNode, WhereNode, WithColumnsNode
from anabranch.dataflow.sql.sql_text import (
    identifier,
    parenthesize,
    quote,
    split_alias,
    sql_literal,
)
from anabranch.dataflow.types.schema import type_to_ddl
from anabranch.plan.boundary import (
    FIRED,
    FROM,
    HASH,
    NOTE,
    NOTE_MARK,
    PART,
    TIME,
    TO,
    Boundary,
    Seats,
    key_name,
    made_key_name,
    made_value_name,
    null_time,
    order_names,
    producer_mark,
    value_name,
)
from anabranch.plan.physical import (
    ChainNode,
    Edge,
    SeenBy,
    TimeAssignment,
    Transform,
    UnionBranch,
    UntimedRows,
)
from anabranch.plan.time_sql import CutQuery, Cuts, time_text
from anabranch.records.bins import HASH_BITS, bin_bits

_KEY = "_ab_key{}"


def bin_text(bins: int) -> str:
    """SQL for the bin of a row, from its hash."""
    return f"cast(shiftrightunsigned({HASH}, {HASH_BITS - bin_bits(bins)}) as int)"


class Crossing(msgspec.Struct, frozen=True):
    """A boundary with the seats of one placement, which together determine the SQL.

    ``partitions`` is the number of partitions of sources whose times Spark tells apart.
    """

    boundary: Boundary
    seats: Seats
    partitions: dict[str, int] = {}

    def from_source(self, source: int, table: str) -> CutQuery:
        """Select the rows of a JVM source for the first level."""
        boundary = self.boundary
        edges = boundary.producers()[source]
        raw = boundary.physical.schemas[source].names
        reader, times = boundary.order[:2], boundary.times
        columns = {name: name for name in raw}
        if len(edges) == 1:
            added = ", ".join([f"{edges[0].id} as {TO}", *map(null_time, times)])
            rows = f"(select *, {added} from {table})"
        else:
            columns = {name: made_value_name(source, i) for i, name in enumerate(raw)}
            renamed = [f"{quote(name)} as {made}" for name, made in columns.items()]
            numbers = ", ".join(str(edge.id) for edge in edges)
            to = f"explode(array({numbers})) as {TO}"
            copied = ", ".join([*reader, *renamed, to, *map(null_time, times)])
            rows = f"(select {copied} from {table})"
        cuts = Cuts(self.partitions)
        rows, packed = self._run_chains(rows, edges, columns, [*reader, *times], cuts)
        made = {boundary.order[2]: "monotonically_increasing_id()"} if reader else {}
        text = self._select_arriving(rows, [*packed, *reader, *times], made)
        return CutQuery(text, tuple(cuts.made))

    def from_transform(self, transform: int, table: str) -> CutQuery:
        """Select the rows of a transform for the level after it."""
        boundary = self.boundary
        edges = boundary.producers()[transform]
        physical = boundary.physical
        names = physical.schemas[transform].names
        columns = {name: made_value_name(transform, i) for i, name in enumerate(names)}
        order: list[str] = []
        if physical.transform(transform).ordered:
            own = order_names(physical.digits[transform])
            order = [name for name in boundary.order if name in own]
        given = transformed_times(physical.transform(transform))
        missing = [null_time(name) for name in boundary.times if name not in given]
        numbers = ", ".join(str(edge.id) for edge in edges)
        to = numbers if len(edges) == 1 else f"explode(array({numbers}))"
        rows = f"(select *, {', '.join([f'{to} as {TO}', *missing])} from {table})"
        cuts, kept = Cuts(self.partitions), [*order, *boundary.times]
        rows, packed = self._run_chains(rows, edges, columns, kept, cuts)
        text = self._select_arriving(rows, [*packed, *kept], {})
        return CutQuery(text, tuple(cuts.made))

    def _run_chains(
        self, rows: str, edges: Sequence[Edge], columns: dict[str, str], kept: list[str], cuts: Cuts
    ) -> tuple[str, list[str]]:
        """Run the chains of all edges of one table; returns the rows and their columns."""
        packed: list[str] = []
        for edge in edges:
            later = [] if edge is edges[-1] else list(columns.values())
            beside = [TO, *kept, *packed, *later]
            rows = self.run_chain(rows, edge, columns, beside, cuts, guarded=len(edges) > 1)
            packed += _packed_names(edge)
        return rows, packed

    def from_tasks(self, emitted: Sequence[int], table: str) -> CutQuery:
        """Select the rows that Python tasks emitted for the next level.

        ``emitted`` are the producers in the table. Rows for a transform alone are left out; notes
        are kept.
        """
        boundary = self.boundary
        producers = [producer for producer in emitted if producer in boundary.producers()]
        if any(producer not in producers for producer in boundary.transform_producers()):
            marks = ", ".join(map(str, [NOTE_MARK, *map(producer_mark, producers)]))
            table = f"(select * from {table} where {FROM} in ({marks}))"
        given = boundary.made_times(emitted)
        missing = [null_time(name) for name in boundary.times if name not in given]
        reserved = [PART, HASH, *boundary.order, *boundary.times, NOTE]
        added = ", ".join([f"{self._destination(producers)} as {TO}", *missing])
        rows = f"(select *, {added} from {table})"
        edges = [e for producer in producers for e in boundary.producers()[producer]]
        apart = partition_columns(edges, boundary.order)
        cuts, packed = Cuts(self.partitions), list[str]()
        for place, edge in enumerate(edges):
            names = boundary.physical.schemas[edge.producer].names
            columns = {name: made_value_name(edge.producer, i) for i, name in enumerate(names)}
            later = dict.fromkeys(e.producer for e in edges[place + 1 :])
            kept = [TO, *reserved, *apart, *packed, *self._made_data(list(later))]
            rows = self.run_chain(rows, edge, columns, kept, cuts, guarded=True)
            packed += _packed_names(edge)
        text = self._select_arriving(rows, [*packed, *reserved], {})
        return CutQuery(text, tuple(cuts.made))

    def controls(self, table: str, part: str, message: str) -> str:
        """Select the messages of a table as notes, each with its partition."""
        given = {PART: part, TO: f"{NOTE_MARK}", NOTE: message}
        columns = [
            f"cast({given.get(field.name, 'null')} as {type_to_ddl(field.type)}) as {field.name}"
            for field in self.boundary.arriving_schema()
        ]
        return f"select {', '.join(columns)} from {table} where {message} is not null"

    def _select_arriving(self, rows: str, there: list[str], made: dict[str, str]) -> str:
        """Select the boundary's columns: those ``there``, hash and route, NULL for the rest."""
        inherited = HASH in there
        hashed = self._hash(there, inherited)
        made = {**made, HASH: hashed}
        with_hash = ", ".join(
            f"{made[field.name]} as {field.name}"
            if field.name in made
            else field.name
            if field.name in there or field.name == TO
            else f"cast(null as {type_to_ddl(field.type)}) as {field.name}"
            for field in self.boundary.arriving_schema()
        )
        if not self.boundary.level.exchange:
            return f"select {with_hash} from {rows}"
        routed = ", ".join(
            f"cast({self._route(there)} as int) as {PART}" if name == PART else name
            for name in self.boundary.arriving_schema().names
        )
        return f"select {routed} from (select {with_hash} from {rows})"

    def _route(self, there: list[str]) -> str:
        """SQL for the partition of a row: any if it has no key. Notes have one; keys need none."""
        edges = [e for e in self.boundary.edges if _has_columns(e, there)]
        loose = [edge for edge in edges if edge.region is None]
        if not loose:
            return PART
        if len(edges) == 1 and NOTE not in there:
            return self._any_partition(loose[0])
        cases = " ".join(f"when {edge.id} then {self._any_partition(edge)}" for edge in loose)
        return f"case {TO} {cases} else {PART} end"

    def _any_partition(self, edge: Edge) -> str:
        group = next(g for g in self.boundary.level.groups if edge.consumer in g.operators)
        first, count = self.seats.first(group.name), len(self.seats.workers(group.name))
        return f"{first} + pmod(spark_partition_id(), {count})"

    def _hash(self, there: list[str], inherited: bool) -> str:
        hashed = HASH if inherited else "cast(null as bigint)"
        fresh = [
            edge for edge in self.boundary.edges if edge.distributes and _has_columns(edge, there)
        ]
        for edge in fresh:
            keys = ", ".join(key_name(edge, i) for i in range(len(edge.keys)))
            value = f"xxhash64({keys})"
            alone = len(self.boundary.edges) == 1 and not inherited
            hashed = (
                value if alone else f"case when {TO} = {edge.id} then {value} else {hashed} end"
            )
        return hashed

    def _destination(self, producers: Sequence[int]) -> str:
        """SQL for ``to`` of emitted rows; a row with several consumers becomes several rows."""
        if not producers:
            return f"{NOTE_MARK}"
        by_producer = self.boundary.producers()
        several = any(len(by_producer[p]) > 1 for p in producers)
        cases = []
        for producer in producers:
            numbers = ", ".join(str(e.id) for e in by_producer[producer])
            value = f"array({numbers})" if several else numbers
            cases.append(f"when {producer_mark(producer)} then {value}")
        other = f"array({NOTE_MARK})" if several else f"{NOTE_MARK}"
        text = f"case {FROM} {' '.join(cases)} else {other} end"
        return f"explode({text})" if several else text

    def _made_data(self, producers: Sequence[int]) -> list[str]:
        names: list[str] = []
        for producer in producers:
            keys = len(self.boundary.carried_keys(producer))
            names += [made_key_name(producer, i) for i in range(keys)]
            values = len(self.boundary.physical.schemas[producer])
            names += [made_value_name(producer, i) for i in range(values)]
        return names

    def run_chain(
        self,
        rows: str,
        edge: Edge,
        columns: dict[str, str],
        kept: list[str],
        cuts: Cuts,
        *,
        guarded: bool,
    ) -> str:
        """Run an edge's chain, which puts the result into the edge's own columns.

        ``columns`` maps the user's columns to those of the table. The columns ``kept`` pass
        through; all others are dropped. ``guarded``: the table holds rows of other edges too.
        """
        keys = self.boundary.carried_keys(edge.producer)
        chain = _Chain(rows, edge, kept, guarded, columns, keys, cuts)
        for node in edge.chain:
            chain.run(node, self.boundary.physical.schemas[node.id])
        return chain.close()


class _Chain:
    """One edge's chain under construction: the table, and the user's columns in it."""

    def __init__(
        self,
        rows: str,
        edge: Edge,
        kept: list[str],
        guarded: bool,
        columns: dict[str, str],
        carried_keys: pa.Schema,
        cuts: Cuts,
    ) -> None:
        """Bring the producer's columns into scope under the user's names."""
        self._rows, self._edge, self._kept, self._guarded = rows, edge, kept, guarded
        self._cuts = cuts
        self._keys: list[str] = []
        self._names, self._source = list(columns), columns
        if not edge.distributes and len(edge.keys):
            self._keys = [made_key_name(edge.producer, i) for i in range(len(carried_keys))]
        needs_names = bool(edge.chain) or edge.arguments is not None
        if needs_names and any(name != source for name, source in columns.items()):
            self._select(columns)

    def run(self, node: ChainNode, schema: pa.Schema) -> None:
        """Apply one operator."""
        match node:
            case WhereNode():
                self._where(parenthesize(node.condition))
            case SplitNode():
                *before, own = map(parenthesize, node.conditions)
                earlier = "".join(f"when {condition} then false " for condition in before)
                self._where(f"case {earlier}else {own} end" if before else own)
            case UnionBranch():
                self._select(self._union_columns(node, schema))
            case SelectNode():
                self._select(self._select_list(node.expressions, schema))
            case WithColumnsNode():
                given = {name.lower(): text for name, text in node.columns}
                values = [
                    self._guard(parenthesize(given[name.lower()]))
                    if name.lower() in given
                    else quote(name)
                    for name in schema.names
                ]
                self._select(dict(zip(schema.names, values, strict=True)))
            case KeyByNode():
                self._key(node)
            case TimeAssignment():
                self._assign(node)
            case UntimedRows():
                column = node.node.column
                self._where(f"{quote(column)} is null")
                letters = untimed_letters(node.source, column, self._names)
                self._select(dict(zip(schema.names, map(self._guard, letters), strict=True)))

    def close(self) -> str:
        """Put the result into the edge's own columns."""
        edge = self._edge
        keys = [f"{quote(name)} as {key_name(edge, i)}" for i, name in enumerate(self._keys)]
        if edge.arguments is None:
            values = [quote(self._source[name]) for name in self._names]
        else:
            values = [self._guard(parenthesize(text)) for _, text in edge.arguments]
        packed = [
            f"cast({value} as {type_to_ddl(column.type)}) as {value_name(edge, i)}"
            for i, (value, column) in enumerate(zip(values, edge.columns, strict=True))
        ]
        return f"(select {', '.join([*self._kept, *keys, *packed])} from {self._rows})"

    def _where(self, condition: str) -> None:
        if self._guarded:
            condition = f"case when {TO} = {self._edge.id} then {condition} else true end"
        self._rows = f"(select * from {self._rows} where {condition})"

    def _union_columns(self, branch: UnionBranch, schema: pa.Schema) -> dict[str, str]:
        """The union's columns: this input's by name, its tag or side, NULL for the rest."""
        own = {branch.renamed(name).lower(): quote(name) for name in self._names}
        if branch.mark is not None:
            name, value = branch.mark
            text = sql_literal(value) if isinstance(value, str) else f"tinyint({value})"
            own[name.lower()] = self._guard(text)
        return {
            field.name: own.get(field.name.lower(), f"cast(null as {type_to_ddl(field.type)})")
            for field in schema
        }

    def _replace(self, columns: list[str]) -> None:
        fixed = dict.fromkeys([*self._kept, *self._keys])
        self._rows = f"(select {', '.join([*fixed, *columns])} from {self._rows})"

    def _guard(self, value: str) -> str:
        if not self._guarded:
            return value
        return f"case when {TO} = {self._edge.id} then {value} end"

    def _select(self, columns: dict[str, str]) -> None:
        self._replace([f"{value} as {quote(name)}" for name, value in columns.items()])
        self._names = list(columns)
        self._source = {name: name for name in columns}

    def _select_list(self, expressions: Sequence[str], schema: pa.Schema) -> dict[str, str]:
        """The value of each column; ``*`` stands for all columns so far."""
        found: dict[str, str] = {}
        fields = iter(schema)
        for text in expressions:
            if text.strip() == "*":
                found |= {next(fields).name: quote(name) for name in self._names}
            else:
                field = next(fields)
                found[field.name] = self._guard(_value(text, field.type))
        return found

    def _key(self, node: KeyByNode) -> None:
        made = []
        for place, ((_, text), column) in enumerate(zip(node.keys, self._edge.keys, strict=True)):
            value = self._guard(parenthesize(text))
            made.append(f"cast({value} as {type_to_ddl(column.type)}) as {_KEY.format(place)}")
        self._replace([*(quote(self._source[name]) for name in self._names), *made])
        self._keys = [_KEY.format(i) for i in range(len(made))]

    def _assign(self, assignment: TimeAssignment) -> None:
        """Give rows their times, if anybody uses them, and have them watched."""
        column = assignment.node.column
        if column is not None and assignment.node.on_error == "dead-letter":
            self._where(f"{quote(column)} is not null")
        if not self._edge.timed:
            return
        if assignment.needs_clock:
            self._rows = self._cuts.with_clock(self._edge, assignment, self._rows)
        time = time_text(assignment, self._names)
        if self._guarded:
            time = f"case when {TO} = {self._edge.id} then {time} else {TIME} end"
        fixed = dict.fromkeys([*self._kept, *self._keys])
        beside = [f"{time} as {TIME}" if name == TIME else name for name in fixed]
        columns = [quote(self._source[name]) for name in self._names]
        rows = f"(select {', '.join([*beside, *columns])} from {self._rows})"
        self._rows = self._cuts.watched(self._edge, assignment, rows, guarded=self._guarded)


def transformed_times(transform: Transform) -> list[str]:
    """The columns of event time that a transform's rows have."""
    return [TIME, *([FIRED] if transform.fired else [])] if transform.timed else []


def partition_columns(edges: Sequence[Edge], there: Sequence[str]) -> list[str]:
    """The column that tells partitions apart, if some edge needs it and it is not there."""
    found = (edge.assignment for edge in edges)
    needed = any(each is not None and each.seen_by is SeenBy.PARTITION for each in found)
    name = order_names(0)[0]
    return [name] if needed and name not in there else []


def _value(text: str, kind: pa.DataType) -> str:
    """An item of a select list as a value that can take another alias.

    An alias without ``as`` cannot be told from the expression; inside a struct it does no harm.
    """
    expression, name = split_alias(text)
    if name is not None or identifier(text) is not None:
        return parenthesize(expression)
    return f"cast(struct(\n{text}\n) as struct<x: {type_to_ddl(kind)}>).x"


def _packed_names(edge: Edge) -> list[str]:
    keys = [key_name(edge, i) for i in range(len(edge.keys))]
    return keys + [value_name(edge, i) for i in range(len(edge.columns))]


def _has_columns(edge: Edge, there: list[str]) -> bool:
    """Whether an edge's columns are among these."""
    names = _packed_names(edge)
    return not names or names[0] in there
