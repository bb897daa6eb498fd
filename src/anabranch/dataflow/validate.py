"""Validation: one walk over the graph that types every operator and collects every problem.

A mistake never stops the walk. Types that depend on it become unknown (see ``row_type``), and are
not reported again. The walk has no side effects.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.dataflow.findings import Finding, from_error
from anabranch.dataflow.functions import (
    MAP_BATCHES_SIGNATURE,
    TRANSFORM_SIGNATURE,
    describe_function,
    function_finding,
)
from anabranch.dataflow.graph import Graph, GraphNode, NamedNode, StatefulNode, label
from anabranch.dataflow.naming import (
    FRONTIER,
    ORD,
    TIME,
    column_findings,
    distinct_row,
    name_finding,
    supported_row,
)
from anabranch.dataflow.sql.ports import Analyzer
from anabranch.dataflow.sql.resolve import Resolver
from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.event_times import keeps_times, type_timestamps, union_times
from anabranch.dataflow.types.join_type import type_sides
from anabranch.dataflow.types.keys import key_findings
from anabranch.dataflow.types.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.types.stateful_types import type_stateful
from anabranch.dataflow.types.typed import Typed, TypedNode
from anabranch.dataflow.types.union_type import union_key, union_row
from anabranch.dataflow.validation import Validation, new_row, output_row
from anabranch.errors import InvalidDataflow, InvalidSchema
from anabranch.protocol.sinks import DeadLetterRows


def validate(graph: Graph, analyzer: Analyzer | None = None) -> Typed:
    """The graph with its types, keys and regions; ``InvalidDataflow`` with all problems at once.

    Without an analyzer, only plain column references are checked, and types that depend on more
    stay unknown (``Typed.schema`` raises for those), as does the schema of a source that only Spark
    can tell.
    """
    walk = Validation(graph, Resolver(analyzer))
    _check_whole(walk)
    for node in graph.nodes:
        _check_name(walk, node)
        _check_used(walk, node)
        walk.typed.append(_type_node(walk, node))
    if walk.problems:
        raise InvalidDataflow(graph.name, walk.problems)
    return Typed(graph, tuple(walk.typed))


def _check_whole(walk: Validation) -> None:
    graph = walk.graph
    findings = [name_finding(graph.name)]
    if not graph.sources():
        findings.append(Finding("it has no source", 'Start with flow.source("name", …).'))
    if not graph.sinks():
        findings.append(Finding("it has no sink", 'End a stream with .sink("name", …).'))
    walk.problems += [f.at(f'dataflow "{graph.name}"') for f in findings if f is not None]


def _check_name(walk: Validation, node: GraphNode) -> None:
    if not isinstance(node, NamedNode):
        return
    walk.report(node, [name_finding(node.name)])
    if not node.name:
        return
    # Names are case-insensitive, as in SQL and in some file systems.
    earlier = walk.names.setdefault(node.name.lower(), node)
    if earlier is not node:
        other = label(walk.graph, earlier)
        walk.report(node, [Finding(f"its name is taken by {other}", "Give it another name.")])


def _check_used(walk: Validation, node: GraphNode) -> None:
    if _has_dead_letters(walk.graph, node) and walk.graph.dead_letters() is None:
        advice = 'Say where: flow.dead_letters("dead-letters", FileSink(…)).'
        walk.report(node, [Finding("its dead letters go nowhere", advice)])
    # Looking at a stream of late rows is enough to record it.
    if isinstance(node, nodes.SinkNode | nodes.LateNode | StatefulNode):
        return
    if walk.graph.consumers(node.id):
        return
    walk.report(
        node, [Finding("its rows go nowhere", 'Add .sink("name", …) to the stream, or drop it.')]
    )


def _has_dead_letters(graph: Graph, node: GraphNode) -> bool:
    """Whether rows it cannot process go to the dataflow's dead letters."""
    if isinstance(node, nodes.SinkNode):
        # Rows without times are those of an ``assign_timestamps``.
        untimed = any(isinstance(graph.node(id), nodes.UntimedNode) for id in node.inputs)
        return isinstance(node.sink, DeadLetterRows) and not untimed
    return getattr(node, "on_error", "fail") == "dead-letter"


def _type_node(walk: Validation, node: GraphNode) -> TypedNode:
    match node:
        case nodes.SourceNode():
            return TypedNode(node, _source_row(walk, node))
        case nodes.UnionNode():
            return type_sides(walk, node) if node.sides else _union(walk, node)
        case nodes.SinkNode(inputs=()):
            return _dead_letters(walk, node)
        case _:
            return _type_single_input(walk, node)


def _type_single_input(walk: Validation, node: GraphNode) -> TypedNode:
    """Type an operator with one input."""
    assert not isinstance(node, nodes.SourceNode | nodes.UnionNode)
    # By default an operator passes on the row, the key beside it and the region.
    before = walk.typed[node.inputs[0]]
    after = replace(before, node=node, value=None, aggregates=(), handles=())
    match node:
        case nodes.WhereNode() | nodes.SplitNode():
            text = node.condition if isinstance(node, nodes.WhereNode) else node.conditions[-1]
            walk.report(node, [walk.resolver.condition(before.row, text)])
        case nodes.MapBatchesNode():
            after = _map_batches(walk, node, after)
        case nodes.TransformNode():
            after = _transform(walk, node, after)
        case nodes.SelectNode() | nodes.WithColumnsNode():
            after = replace(after, row=_columns_row(walk, node, before.row))
        case nodes.TimestampsNode() | nodes.UntimedNode():
            after = type_timestamps(walk, node, after)
        case nodes.KeyByNode():
            after = replace(after, next_key=_key(walk, node, before.row))
        case nodes.DistributeNode():
            after = _distribute(walk, node, after)
        case nodes.LocalNode():
            after = replace(after, key=None, next_key=None, region=None)
        case (
            nodes.AggregateNode()
            | nodes.TopNode()
            | nodes.ApplyNode()
            | nodes.StatefulMapNode()
            | nodes.StatefulBatchesNode()
            | nodes.ProcessNode()
            | nodes.JoinNode()
            | nodes.AsOfJoinNode()
            | nodes.LatestJoinNode()
            | nodes.DedupNode()
        ):
            after = type_stateful(walk, node, after)
        case nodes.LateNode():
            after = _late(walk, node)
        case nodes.SinkNode():
            walk.report(node, [_refusal(node, before.row)])
        case _:
            assert_never(node)
    return after


def _late(walk: Validation, node: nodes.LateNode) -> TypedNode:
    """Type the late rows of an operator: those of its input, and the frontier."""
    operator = walk.graph.node(node.inputs[0])
    if not operator.has_late_rows:
        what = f"no row comes too late for {label(walk.graph, operator)}"
        do = "Take .late of a window, a join or a dedup."
        walk.report(node, [Finding(what, do)])
        return replace(walk.typed[operator.id], node=node)
    given = walk.typed[operator.inputs[0]]
    if given.row.find(FRONTIER) is not None:
        what = f'its rows have a column "{FRONTIER}", which late rows get too'
        walk.report(node, [Finding(what, "Rename it with .select before the operator.")])
        return replace(given, node=node)
    frontier = Column(FRONTIER, pa.field(FRONTIER, pa.timestamp("us", "UTC")))
    row = RowType((*given.row.columns, frontier), open=given.row.open)
    return replace(given, node=node, row=row, timed=False)


def _source_row(walk: Validation, node: nodes.SourceNode) -> RowType:
    if walk.resolver.analyzer is None and not getattr(node.source, "schema_is_known", True):
        return UNKNOWN_ROW
    try:
        schema = node.source.schema
    except InvalidSchema as error:
        walk.report(node, [from_error(error, "", "Correct its schema.")])
        return UNKNOWN_ROW
    if not isinstance(schema, pa.Schema):
        finding = Finding("its schema is not a pyarrow schema", "Make it one: parse_schema(text).")
        walk.report(node, [finding])
        return UNKNOWN_ROW
    if len(schema) == 0:
        walk.report(node, [Finding("it has no columns", "Give it a schema with columns.")])
        return UNKNOWN_ROW
    return new_row(walk, node, RowType.of(schema).columns, RowType(()))


def _refusal(node: nodes.SinkNode, row: RowType) -> Finding | None:
    schema = row.schema()
    text = None if schema is None else node.sink.refuses(schema)
    if text is None:
        return None
    return Finding(
        f"it cannot take these rows: {text}", "Change the columns with .select before it."
    )


def _columns_row(
    walk: Validation, node: nodes.SelectNode | nodes.WithColumnsNode, row: RowType
) -> RowType:
    if isinstance(node, nodes.SelectNode):
        return _select_row(walk, node, row)
    return _with_columns_row(walk, node, row)


def _select_row(walk: Validation, node: nodes.SelectNode, row: RowType) -> RowType:
    if not node.expressions:
        walk.report(node, [Finding("it selects nothing", 'Name columns, e.g. .select("id").')])
        return UNKNOWN_ROW
    resolved = walk.resolver.columns(row, [(None, text) for text in node.expressions])
    walk.report(node, resolved.findings)
    return new_row(walk, node, resolved.columns, row, open=resolved.open)


def _with_columns_row(walk: Validation, node: nodes.WithColumnsNode, row: RowType) -> RowType:
    if not node.columns:
        walk.report(node, [Finding("it adds nothing", 'Name columns, e.g. twice="amount * 2".')])
    resolved = walk.resolver.named(row, node.columns)
    walk.report(node, resolved.findings)
    added, clashes = distinct_row(resolved.columns)
    walk.report(node, clashes)
    kept = [added.find(column.name) or column for column in row.columns]
    new = [column for column in added.columns if row.find(column.name) is None]
    return new_row(walk, node, [*kept, *new], row, open=row.open or added.open)


def _key(walk: Validation, node: nodes.KeyByNode, row: RowType) -> RowType:
    if not node.keys:
        walk.report(node, [Finding("it has no key", 'Name key columns, e.g. "customer".')])
        return UNKNOWN_ROW
    named = [(name, text) for name, text in node.keys if name]
    for name, text in node.keys:
        if not name:
            found = Finding(f'the key "{text}" has no name', f'Give it one, e.g. part="{text}".')
            if row.find(text) is not None:
                what = f'the name of the column "{text}" is not a plain word'
                found = Finding(what, f'Put it in backquotes: "{quote(text)}".')
            walk.report(node, [found])
    resolved = walk.resolver.named(row, named)
    walk.report(node, resolved.findings)
    key, clashes = distinct_row(resolved.columns, open=len(named) < len(node.keys))
    walk.report(node, clashes)
    for column in key.columns:
        # Report a type that cannot be a key only once.
        refused = [] if column.field is None else key_findings(column.field)
        walk.report(node, refused or column_findings([column], "key"))
    return supported_row(key)


def _distribute(walk: Validation, node: nodes.DistributeNode, after: TypedNode) -> TypedNode:
    if after.next_key is None:
        advice = 'Call .key_by("column") before it, or use .key_distribute("name", "column").'
        walk.report(node, [Finding("there is no key_by before it", advice)])
    key = UNKNOWN_ROW if after.next_key is None else after.next_key
    return replace(after, key=key, next_key=None, region=node.id)


def _dead_letters(walk: Validation, node: nodes.SinkNode) -> TypedNode:
    row = RowType.of(DEAD_LETTER_SCHEMA)
    walk.report(node, [_refusal(node, row)])
    first = walk.graph.dead_letters()
    if first is not None and first is not node:
        what = f"dead letters go to {label(walk.graph, first)} already"
        walk.report(node, [Finding(what, "Keep one of the two.")])
    return TypedNode(node, row)


def _union(walk: Validation, node: nodes.UnionNode) -> TypedNode:
    inputs = [walk.typed[id] for id in node.inputs]
    if not inputs:
        walk.report(node, [Finding("it unites nothing", "Name streams, e.g. a=…, b=….")])
        return TypedNode(node, UNKNOWN_ROW)
    row, findings = union_row([typed.row for typed in inputs], node.tag and node.tag[0])
    walk.report(node, findings)
    tagged = [] if node.tag is None else [c for c in row.columns if c.name == node.tag[0]]
    walk.report(node, column_findings(tagged))
    after, findings = union_key(inputs, TypedNode(node, row))
    walk.report(node, findings)
    timed, findings = union_times(inputs)
    walk.report(node, findings)
    return replace(after, timed=timed)


def _map_batches(walk: Validation, node: nodes.MapBatchesNode, after: TypedNode) -> TypedNode:
    wrong = function_finding(node.function, MAP_BATCHES_SIGNATURE)
    walk.report(node, [wrong, _early_key(after)])
    row = output_row(walk, node)
    if row.find(ORD) is not None:
        walk.report(node, [Finding(f'output column "{ORD}" names the input row', "Rename it.")])
    return replace(after, row=row, next_key=None)


def _transform(walk: Validation, node: nodes.TransformNode, after: TypedNode) -> TypedNode:
    """Type a transform. Its rows are in no region: the user's code may move them anywhere."""
    function = node.function.function
    assert function is not None
    outside = replace(after, key=None, next_key=None, region=None, row=UNKNOWN_ROW)
    wrong = function_finding(function, TRANSFORM_SIGNATURE)
    taken = _taken_names(after)
    walk.report(node, [_early_key(after), wrong, *taken])
    schema, analyzer = after.row.schema(), walk.resolver.analyzer
    if wrong is not None or taken or schema is None or analyzer is None:
        return outside
    answer = analyzer.transform(schema, function, ordered=after.ordered, timed=after.timed)
    if isinstance(answer, str):
        what = f"function {describe_function(function)} cannot be used: {answer}"
        walk.report(node, [Finding(what, "Correct the function: it gets a step's rows.")])
        return outside
    row = new_row(walk, node, RowType.of(answer.columns).columns, after.row)
    timed = keeps_times(walk, node, answer)
    return replace(outside, row=row, ordered=answer.ordered, timed=timed)


def _taken_names(given: TypedNode) -> list[Finding]:
    """The columns whose names a transform's own columns have."""
    findings = []
    if given.row.find(ORD) is not None:
        findings.append(Finding(f'column "{ORD}" names the input row there', "Rename it."))
    if given.timed and given.row.find(TIME) is not None:
        findings.append(Finding(f'column "{TIME}" is the event time there', "Rename it."))
    return findings


def _early_key(after: TypedNode) -> Finding | None:
    if after.next_key is None:
        return None
    advice = "Call .key_by after it: the key is computed from its output."
    return Finding("there is a key_by before it", advice)
