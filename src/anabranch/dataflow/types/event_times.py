"""Which streams have event times: where they get them, keep them and lose them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.graph import (
    DistributeNode,
    Graph,
    GraphNode,
    LateNode,
    SourceNode,
    StatefulNode,
    TimestampsNode,
    TransformNode,
    UntimedNode,
    label,
)
from anabranch.dataflow.naming import ORD, TIME
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.row_type import Column, RowType
from anabranch.dataflow.types.schema import type_text
from anabranch.dataflow.types.typed import TypedNode
from anabranch.dataflow.validation import Validation
from anabranch.protocol.sources import OWN_TIME, read_by_spark, tells_times

_ASSIGN = 'Call .assign_timestamps("column") on the source, before the first distribution.'


def type_timestamps(
    walk: Validation, node: TimestampsNode | UntimedNode, after: TypedNode
) -> TypedNode:
    """Type an ``assign_timestamps``: the same rows, with event times; or those without, apart."""
    if isinstance(node, UntimedNode):
        return TypedNode(node, RowType.of(DEAD_LETTER_SCHEMA))
    walk.report(node, [*_place_findings(walk, node, after), _time_finding(walk, node, after.row)])
    return replace(after, timed=True)


def union_times(inputs: Sequence[TypedNode]) -> tuple[bool, list[Finding]]:
    """Whether the rows of a union have event times; all of its inputs have them, or none has."""
    timed = [typed.timed for typed in inputs]
    if all(timed) or not any(timed):
        return all(timed), []
    number = timed.index(False) + 1
    finding = Finding(
        f"input {number} has no event times, but others have them",
        "Call .assign_timestamps on each input of the union, or once after it.",
    )
    return True, [finding]


def keeps_times(walk: Validation, node: TransformNode, answer: Transformed) -> bool:
    """Whether the rows of a transform have event times.

    Rows that notifications made are known by their order. Behind an operator that may make some,
    times without the order are of no use: such rows would be late.
    """
    return answer.timed and (answer.ordered or not _behind_state(walk.graph, node))


def untimed_finding(walk: Validation, node: GraphNode) -> Finding | None:
    """Why an operator over event time cannot work on its input; None if it has event times."""
    given = walk.typed[node.inputs[0]]
    if given.timed:
        return None
    for before in _upstream(walk.graph, node):
        if isinstance(before, TransformNode) and walk.typed[before.inputs[0]].timed:
            wanted = f"{TIME} and {ORD}" if _behind_state(walk.graph, before) else TIME
            what = f"{label(walk.graph, before)} before it does not return {wanted}"
            do = f"Let the transform return {wanted} unchanged with each row."
            return Finding(f"its rows have no event times: {what}", do)
        if isinstance(before, LateNode):
            what = "its rows were late, and have no event times any more"
            return Finding(what, "Write late rows to a sink, or process them without times.")
    return Finding("its rows have no event times", _ASSIGN)


def _place_findings(walk: Validation, node: TimestampsNode, after: TypedNode) -> list[Finding]:
    """What is wrong with where an ``assign_timestamps`` stands."""
    graph = walk.graph
    for before in _upstream(graph, node):
        if isinstance(before, DistributeNode):
            return [Finding(f"it stands behind {label(graph, before)}", _ASSIGN)]
        if isinstance(before, TransformNode):
            sources = [each for each in _upstream(graph, before) if isinstance(each, SourceNode)]
            if len(sources) > 1:
                what = f"{label(graph, before)} before it mixes the rows of several sources"
                do = "Call .assign_timestamps on each source, before the transform."
                return [Finding(what, do)]
    if after.timed:
        return [Finding("its rows have event times already", "Keep one of the two.")]
    return []


def _time_finding(walk: Validation, node: TimestampsNode, row: RowType) -> Finding | None:
    """What is wrong with where times are taken from."""
    if node.column is None:
        return None
    found = row.find(node.column)
    if found is not None:
        return _type_finding(found)
    if node.column == OWN_TIME:
        return _told_finding(node, walk.graph.node(node.inputs[0]))
    if row.open:
        return None
    return Finding(f'there is no column "{node.column}"', choose_among(node.column, row.names))


def _told_finding(node: TimestampsNode, before: GraphNode) -> Finding | None:
    """Why times cannot be those that a source tells beside its rows."""
    if not isinstance(before, SourceNode):
        what = f'there is no column "{OWN_TIME}", and only a source tells times beside its rows'
        return Finding(what, "Call .assign_timestamps on the source itself.")
    if read_by_spark(before.source) or not tells_times(before.source):
        what = f'there is no column "{OWN_TIME}", and the source tells no times beside its rows'
        return Finding(what, "Name a column with times, or use ARRIVAL.")
    if node.on_error != "fail":
        what = "the source tells a time for every row, so none becomes a dead letter"
        return Finding(what, "Leave out on_error.")
    return None


def _type_finding(column: Column) -> Finding | None:
    if column.type is None or pa.types.is_timestamp(column.type):
        return None
    return Finding(
        f'column "{column.name}" is {type_text(column.type)}, which is no time',
        f'Make it one before: .with_columns({column.name}="timestamp(…)").',
    )


def _behind_state(graph: Graph, node: GraphNode) -> bool:
    return any(isinstance(before, StatefulNode) for before in _upstream(graph, node))


def _upstream(graph: Graph, node: GraphNode) -> Iterator[GraphNode]:
    """The nodes before this one, the nearest first, each once."""
    waiting, seen = list(node.inputs), set[int]()
    while waiting:
        id = waiting.pop(0)
        if id not in seen:
            seen.add(id)
            yield graph.node(id)
            waiting += graph.node(id).inputs
