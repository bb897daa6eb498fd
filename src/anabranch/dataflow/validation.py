"""The state of a validation walk over the graph, and the helpers that its rules share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.dataflow.findings import Finding, from_error
from anabranch.dataflow.graph import (
    ApplyNode,
    Graph,
    GraphNode,
    MapBatchesNode,
    NamedNode,
    ProcessNode,
    StatefulBatchesNode,
    StatefulMapNode,
    label,
)
from anabranch.dataflow.naming import column_findings, distinct_row, supported_row
from anabranch.dataflow.sql.resolve import Resolver
from anabranch.dataflow.types.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.types.schema import parse_schema
from anabranch.dataflow.types.typed import TypedNode
from anabranch.errors import InvalidSchema, Problem


@dataclass(slots=True)
class Validation:
    """The types, problems and names found so far."""

    graph: Graph
    resolver: Resolver
    typed: list[TypedNode] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    names: dict[str, NamedNode] = field(default_factory=dict)

    def report(self, node: GraphNode, findings: Iterable[Finding | None]) -> None:
        """Record the problems of a node."""
        operator = label(self.graph, node)
        self.problems += [finding.at(operator) for finding in findings if finding is not None]


def new_row(
    walk: Validation,
    node: GraphNode,
    columns: Iterable[Column],
    known: RowType,
    *,
    open: bool = False,
) -> RowType:
    """The output row of an operator; only the columns it introduces are checked."""
    row, clashes = distinct_row(tuple(columns), open=open)
    introduced = [c for c in row.columns if known.find(c.name) != c]
    walk.report(node, [*clashes, *column_findings(introduced)])
    return supported_row(row)


def output_row(
    walk: Validation,
    node: ApplyNode | StatefulMapNode | StatefulBatchesNode | ProcessNode | MapBatchesNode,
) -> RowType:
    """The output row that the user declared."""
    output = read_schema(walk, node, "output", node.output)
    return UNKNOWN_ROW if output is None else distinct_row(RowType.of(output).columns)[0]


def read_schema(walk: Validation, node: GraphNode, what: str, text: str) -> pa.Schema | None:
    """Parse a schema text; reports a problem and returns None if it cannot be parsed."""
    try:
        schema = parse_schema(text)
    except InvalidSchema as error:
        walk.report(node, [from_error(error, f"{what}: ", "Correct it.")])
        return None
    row, clashes = distinct_row(RowType.of(schema).columns)
    walk.report(node, [Finding(f"{what}: {clash.what}", clash.do) for clash in clashes])
    walk.report(node, column_findings(row.columns, f"{what} column"))
    return schema
