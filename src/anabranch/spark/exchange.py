"""From the rows of one level to those of the next, in Catalyst: chains, hash, route, one exchange.

Every edge's chain runs over the one table that all edges share. An expression is guarded so that it
sees only rows of its own edge: foreign rows have NULLs where it looks, and could make it fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.graph import KeyByNode, SelectNode, WhereNode, WithColumnsNode
from anabranch.dataflow.schema import type_to_ddl
from anabranch.plan.boundary import (
    FROM,
    HASH,
    NOTE,
    NOTE_MARK,
    PART,
    TO,
    Boundary,
    Seats,
    key_name,
    made_key_name,
    made_value_name,
    producer_mark,
    value_name,
)
from anabranch.plan.physical import ChainNode, Edge
from anabranch.plan.step import Assignment
from anabranch.state.bins import HASH_BITS, bin_bits

_KEY = "_ab_key{}"


def quoted(name: str) -> str:
    """A column's name for use in SQL."""
    return "`" + name.replace("`", "``") + "`"


def from_source(df: DataFrame, boundary: Boundary, source: int) -> DataFrame:
    """The rows of a source that the JVM reads, as they arrive at the first level."""
    edges = boundary.producers()[source]
    raw = boundary.physical.schemas[source].names
    reader = boundary.order[:2]
    columns = {name: name for name in raw}
    if len(edges) == 1:
        df = df.withColumn(TO, F.lit(edges[0].id))
    else:
        columns = {name: made_value_name(source, i) for i, name in enumerate(raw)}
        renamed = [F.col(quoted(name)).alias(made) for name, made in columns.items()]
        numbers = ", ".join(str(edge.id) for edge in edges)
        df = df.select(*reader, *renamed, F.expr(f"explode(array({numbers}))").alias(TO))
    packed: list[str] = []
    for edge in edges:
        later = [] if edge is edges[-1] else list(columns.values())
        kept = [TO, *reader, *packed, *later]
        df = _run_edge(df, boundary, edge, columns, kept, guarded=len(edges) > 1)
        packed += _packed_names(edge)
    row = F.monotonically_increasing_id()
    return df.select(*_arriving_columns(boundary, packed, reader_row=row))


def from_tasks(df: DataFrame, boundary: Boundary, producers: Sequence[int]) -> DataFrame:
    """The rows that Python tasks emitted, as they arrive at the next level."""
    by_producer = boundary.producers()
    reserved = [PART, HASH, *boundary.order, NOTE]
    df = df.select("*", _destination(boundary, producers))
    edges = [edge for producer in producers for edge in by_producer[producer]]
    packed: list[str] = []
    for place, edge in enumerate(edges):
        names = boundary.physical.schemas[edge.producer].names
        columns = {name: made_value_name(edge.producer, i) for i, name in enumerate(names)}
        later = dict.fromkeys(e.producer for e in edges[place + 1 :])
        kept = [TO, *reserved, *packed, *_made_data(boundary, list(later))]
        df = _run_edge(df, boundary, edge, columns, kept, guarded=True)
        packed += _packed_names(edge)
    return df.select(*_arriving_columns(boundary, packed, reader_row=None))


def with_route(df: DataFrame, route: Column) -> DataFrame:
    """The rows with the partition that each goes to; notes know theirs."""
    columns = [route.alias(PART) if name == PART else F.col(name) for name in df.columns]
    return df.select(*columns)


def route(boundary: Boundary, seats: Seats, placement: Sequence[Assignment], bins: int) -> Column:
    """The partition of each row: by its bin's owner, or anywhere for rows without a key."""
    assignments = {a.region: a for a in placement}
    chosen = F.col(PART)
    for edge in boundary.edges:
        chosen = F.when(
            F.col(TO) == edge.id, F.expr(_edge_route(edge, boundary, seats, assignments, bins))
        ).otherwise(chosen)
    return chosen


def exchange(df: DataFrame, partitions: int) -> DataFrame:
    """Put every row into its partition."""
    return df.repartitionById(partitions, F.col(PART))


def control_rows(
    spark: SparkSession, boundary: Boundary, notes: Sequence[tuple[int, bytes]]
) -> DataFrame:
    """One row per message: its partition, and the message."""
    parts = ", ".join(str(part) for part, _ in notes)
    payloads = ", ".join(f"X'{payload.hex()}'" for _, payload in notes)
    given = {
        PART: f"array({parts})[cast(id as int)]",
        TO: f"{NOTE_MARK}",
        NOTE: f"array({payloads})[cast(id as int)]",
    }
    columns = [
        f"cast({given.get(field.name, 'null')} as {type_to_ddl(field.type)}) as {field.name}"
        for field in boundary.arriving()
    ]
    return spark.range(0, len(notes), 1, 1).selectExpr(*columns)


def united(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows of several tables with the same columns."""
    return reduce(DataFrame.union, parts)


def _edge_route(
    edge: Edge, boundary: Boundary, seats: Seats, assignments: dict[str, Assignment], bins: int
) -> str:
    group = next(g for g in boundary.level.groups if edge.consumer in g.operators)
    first = seats.first(group.name)
    if group.region is None:
        return f"cast({first} + pmod(spark_partition_id(), {seats.count(group.name)}) as int)"
    owners = assignments[group.region].workers
    if len(set(owners)) == 1:
        return f"{first + owners[0]}"
    table = ", ".join(str(first + worker) for worker in owners)
    shift = HASH_BITS - bin_bits(bins)
    return f"array({table})[cast(shiftrightunsigned({HASH}, {shift}) as int)]"


def _destination(boundary: Boundary, producers: Sequence[int]) -> Column:
    """``to`` of rows that tasks emitted; a row with several consumers becomes several rows."""
    by_producer = boundary.producers()
    several = any(len(by_producer[p]) > 1 for p in producers)
    cases = []
    for producer in producers:
        numbers = ", ".join(str(e.id) for e in by_producer[producer])
        value = f"array({numbers})" if several else numbers
        cases.append(f"when {producer_mark(producer)} then {value}")
    other = f"array({NOTE_MARK})" if several else f"{NOTE_MARK}"
    text = f"case {FROM} {' '.join(cases)} else {other} end"
    return F.expr(f"explode({text})" if several else text).alias(TO)


def _made_data(boundary: Boundary, producers: Sequence[int]) -> list[str]:
    names: list[str] = []
    for producer in producers:
        keys = len(boundary.carried_keys(producer))
        names += [made_key_name(producer, i) for i in range(keys)]
        values = len(boundary.physical.schemas[producer])
        names += [made_value_name(producer, i) for i in range(values)]
    return names


def _packed_names(edge: Edge) -> list[str]:
    keys = [key_name(edge, i) for i in range(len(edge.keys))]
    return keys + [value_name(edge, i) for i in range(len(edge.columns))]


def _run_edge(
    df: DataFrame,
    boundary: Boundary,
    edge: Edge,
    columns: dict[str, str],
    kept: list[str],
    *,
    guarded: bool,
) -> DataFrame:
    """Run an edge's chain; its result stands in its own columns afterwards.

    ``columns`` says where the user's columns are to be found. ``kept`` stays as it is; what is
    not named is dropped.
    """
    chain = _Chain(df, edge, kept, guarded)
    chain.open(columns, boundary.carried_keys(edge.producer))
    for node in edge.chain:
        chain.run(node, boundary.physical.schemas[node.id])
    return chain.close()


class _Chain:
    """One edge's chain under way: the table, and where the user's columns stand in it."""

    def __init__(self, df: DataFrame, edge: Edge, kept: list[str], guarded: bool) -> None:
        self._df = df
        self._edge = edge
        self._kept = kept
        self._guarded = guarded
        self._keys: list[str] = []
        self._names: list[str] = []
        self._source: dict[str, str] = {}

    def open(self, columns: dict[str, str], carried_keys: pa.Schema) -> None:
        """Bring the producer's columns into scope under the user's names."""
        edge = self._edge
        self._names = list(columns)
        self._source = columns
        if not edge.distributes and len(edge.keys):
            self._keys = [made_key_name(edge.producer, i) for i in range(len(carried_keys))]
        needs_names = bool(edge.chain) or edge.arguments is not None
        if needs_names and any(name != source for name, source in columns.items()):
            renamed = [F.col(quoted(s)).alias(n) for n, s in columns.items()]
            self._df = self._df.select(*self._fixed(), *renamed)
            self._source = {name: name for name in columns}

    def run(self, node: ChainNode, schema: pa.Schema) -> None:
        """Apply one operator."""
        match node:
            case WhereNode():
                condition = F.expr(node.condition)
                if self._guarded:
                    condition = (F.col(TO) != self._edge.id) | self._own(condition)
                self._df = self._df.where(condition)
            case SelectNode():
                self._select(self._selected(node.expressions, schema))
            case WithColumnsNode():
                given = {name.lower(): text for name, text in node.columns}
                texts = [given.get(name.lower(), quoted(name)) for name in schema.names]
                self._select(dict(zip(schema.names, texts, strict=True)))
            case KeyByNode():
                self._key(node)

    def close(self) -> DataFrame:
        """Put the result into the edge's own columns."""
        edge = self._edge
        keys = [F.col(quoted(name)).alias(key_name(edge, i)) for i, name in enumerate(self._keys)]
        if edge.arguments is None:
            values = [F.col(quoted(self._source[name])) for name in self._names]
        else:
            values = [self._own(F.expr(text)) for _, text in edge.arguments]
        packed = [
            value.cast(type_to_ddl(column.type)).alias(value_name(edge, i))
            for i, (value, column) in enumerate(zip(values, edge.columns, strict=True))
        ]
        kept = [F.col(quoted(name)) for name in self._kept]
        return self._df.select(*kept, *keys, *packed)

    def _fixed(self) -> list[Column]:
        return [F.col(quoted(name)) for name in dict.fromkeys([*self._kept, *self._keys])]

    def _own(self, value: Column) -> Column:
        return F.when(F.col(TO) == self._edge.id, value) if self._guarded else value

    def _select(self, columns: dict[str, str]) -> None:
        made = [self._own(F.expr(text)).alias(name) for name, text in columns.items()]
        self._df = self._df.select(*self._fixed(), *made)
        self._names = list(columns)
        self._source = {name: name for name in columns}

    def _selected(self, expressions: Sequence[str], schema: pa.Schema) -> dict[str, str]:
        texts: list[str] = []
        for text in expressions:
            if text.strip() == "*":
                texts += [quoted(name) for name in self._names]
            else:
                texts.append(text)
        return dict(zip(schema.names, texts, strict=True))

    def _key(self, node: KeyByNode) -> None:
        made = []
        for place, ((_, text), column) in enumerate(zip(node.keys, self._edge.keys, strict=True)):
            value = self._own(F.expr(text)).cast(type_to_ddl(column.type))
            made.append(value.alias(_KEY.format(place)))
        named = [F.col(quoted(name)) for name in self._names]
        self._df = self._df.select(*self._fixed(), *named, *made)
        self._keys = [_KEY.format(i) for i in range(len(made))]


def _arriving_columns(
    boundary: Boundary, packed: list[str], reader_row: Column | None
) -> list[Column]:
    """The columns of the boundary: what is there, the hash of fresh keys, NULL for the rest."""
    there = set(packed) | {TO}
    if reader_row is None:
        there |= {PART, HASH, NOTE, *boundary.order}
    else:
        there |= set(boundary.order[:2])
    made: dict[str, Column] = {HASH: _hash(boundary, packed, reader_row is None)}
    if reader_row is not None and boundary.order:
        made[boundary.order[2]] = reader_row
    columns = []
    for field in boundary.arriving():
        kind = type_to_ddl(field.type)
        if field.name in made:
            columns.append(made[field.name].alias(field.name))
        elif field.name in there:
            columns.append(F.col(field.name))
        else:
            columns.append(F.lit(None).cast(kind).alias(field.name))
    return columns


def _hash(boundary: Boundary, packed: list[str], inherited: bool) -> Column:
    hashed = F.col(HASH) if inherited else F.lit(None).cast("bigint")
    fresh = [
        edge
        for edge in boundary.edges
        if edge.distributes and any(key_name(edge, i) in packed for i in range(len(edge.keys)))
    ]
    for edge in fresh:
        value = F.xxhash64(*(F.col(key_name(edge, i)) for i in range(len(edge.keys))))
        alone = len(boundary.edges) == 1 and not inherited
        hashed = value if alone else F.when(F.col(TO) == edge.id, value).otherwise(hashed)
    return hashed
