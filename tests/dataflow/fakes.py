"""Stand-ins for what surrounds a dataflow: a source, a sink, someone who understands SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.naming import ORD, TIME
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import parse_schema, to_ddl
from anabranch.errors import InvalidDataflow
from anabranch.protocol.sinks import Sink
from anabranch.protocol.sources import Source


@dataclass(frozen=True)
class FakeSource:
    schema: pa.Schema


@dataclass(frozen=True)
class FakeSink:
    refusal: str | None = None

    def refuses(self, schema: pa.Schema) -> str | None:
        return self.refusal

    def encode(self, table: pa.Table) -> pa.Buffer:
        raise NotImplementedError

    def open(self, context: object) -> object:
        raise NotImplementedError


@dataclass(frozen=True)
class FakeAnalyzer:
    """Knows columns, ``*``, ``x as y`` and the expressions it is told the types of.

    Anything else is an error, and so is a condition that is not one of ``conditions``. In place of
    a DataFrame a function gets a schema and gives one, or says what is wrong.
    """

    types: Mapping[str, pa.Field] = field(default_factory=dict)
    conditions: frozenset[str] = frozenset()
    asked: list[tuple[str | None, str]] = field(default_factory=list)

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        return None if text in self.conditions else f"no\nsuch condition: {text}."

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        self.asked.extend(expressions)
        to_ddl(schema)  # A real analyzer is given supported types only.
        fields: list[pa.Field] = []
        for name, text in expressions:
            if text == "*":
                fields.extend(schema)
                continue
            body, _, alias = text.partition(" as ")
            found = self.types.get(body) or next(
                (f for f in schema if f.name.lower() == body.lower()), None
            )
            if found is None:
                return f"cannot resolve {body}"
            fields.append(found.with_name(name or alias or body))
        return pa.schema(fields)

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool, timed: bool
    ) -> Transformed | str:
        made = function(given_to_transform(schema, ordered, timed))
        if isinstance(made, str):
            return made
        kept = [field for field in made if field.name not in (ORD, TIME)]
        return Transformed(pa.schema(kept), ORD in made.names, timed and TIME in made.names)


def given_to_transform(schema: pa.Schema, ordered: bool, timed: bool) -> pa.Schema:
    """What stands for the DataFrame: the columns, and ``_ord`` and ``_time`` if rows have them."""
    own = [pa.field(ORD, pa.int64())] if ordered else []
    own += [pa.field(TIME, pa.timestamp("us", "UTC"))] if timed else []
    return pa.schema([*schema, *own])


def source(ddl: str = "customer string, amount double, at timestamp") -> Source:
    return arrow_source(parse_schema(ddl))


def arrow_source(schema: Any) -> Source:
    return cast(Source, FakeSource(schema))


def sink(refusal: str | None = None) -> Sink:
    return cast(Sink, FakeSink(refusal))


def add(key: Any, row: Any, total: Any) -> Any:
    """A function as users write them for ``stateful_map``."""
    total = (total or 0.0) + row.amount
    return (key.customer, total), total


def orders(ddl: str = "customer string, amount double, at timestamp") -> tuple[Dataflow, Stream]:
    """A dataflow with one source."""
    flow = Dataflow("shop")
    return flow, flow.source("orders", source(ddl))


def problems_of(error: InvalidDataflow) -> list[tuple[str, str]]:
    """Operator and what is wrong, for each problem."""
    return [(problem.operator, problem.what) for problem in error.problems]
