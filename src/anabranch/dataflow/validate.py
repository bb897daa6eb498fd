"""Validation: one walk over the graph that types every operator and collects every problem.

A mistake never stops the walk: what it makes unknown is marked so (see ``row_type``), and what
depends on it is not reported again. The walk asks the analyzer and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

import pyarrow as pa

from anabranch.dataflow.aggregates import (
    is_nullable,
    parse_aggregate,
    refuse_collated,
    result_type,
)
from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.dataflow.findings import Finding, from_error
from anabranch.dataflow.functions import (
    batch_function_finding,
    batches_function_finding,
    function_finding,
)
from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    Graph,
    KeyByNode,
    LocalNode,
    MapBatchesNode,
    NamedNode,
    Node,
    ProcessNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
    UnionNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.dataflow.handles import MapState, handles_of, overrides, ttl_ns
from anabranch.dataflow.keys import key_findings
from anabranch.dataflow.labels import label
from anabranch.dataflow.naming import (
    FORGET,
    KEY,
    ORD,
    column_findings,
    distinct_row,
    name_finding,
    supported_row,
)
from anabranch.dataflow.ports import Analyzer
from anabranch.dataflow.resolve import Resolver
from anabranch.dataflow.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.schema import parse_schema
from anabranch.dataflow.typed import AggregateColumn, Typed, TypedHandle, TypedNode
from anabranch.dataflow.uniting import united_key, united_row
from anabranch.errors import InvalidAggregate, InvalidDataflow, InvalidSchema, Problem

__all__ = ["Problem", "validate"]


def validate(graph: Graph, analyzer: Analyzer | None = None) -> Typed:
    """The graph with its types, keys and regions; ``InvalidDataflow`` with all problems at once.

    Without an analyzer SQL is not understood: plain column references are checked, and types that
    depend on more stay unknown (``Typed.schema`` raises for those).
    """
    walk = _Walk(graph, Resolver(analyzer))
    _check_whole(walk)
    for node in graph.nodes:
        _check_name(walk, node)
        _check_used(walk, node)
        walk.typed.append(_typed(walk, node))
    if walk.problems:
        raise InvalidDataflow(graph.name, walk.problems)
    return Typed(graph, tuple(walk.typed))


@dataclass(slots=True)
class _Walk:
    """How far the walk is, and what it has found so far."""

    graph: Graph
    resolver: Resolver
    typed: list[TypedNode] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    names: dict[str, NamedNode] = field(default_factory=dict)

    def report(self, node: Node, findings: Iterable[Finding | None]) -> None:
        operator = label(self.graph, node)
        self.problems += [finding.at(operator) for finding in findings if finding is not None]


def _check_whole(walk: _Walk) -> None:
    graph = walk.graph
    findings = [name_finding(graph.name)]
    if not graph.sources():
        findings.append(Finding("it has no source", 'Start with flow.source("name", …).'))
    if not graph.sinks():
        findings.append(Finding("it has no sink", 'End a stream with .sink("name", …).'))
    walk.problems += [f.at(f'dataflow "{graph.name}"') for f in findings if f is not None]


def _check_name(walk: _Walk, node: Node) -> None:
    if not isinstance(node, NamedNode):
        return
    walk.report(node, [name_finding(node.name)])
    if not node.name:
        return
    # State views are asked for in SQL and some file systems ignore case: so do names.
    earlier = walk.names.setdefault(node.name.lower(), node)
    if earlier is not node:
        other = label(walk.graph, earlier)
        walk.report(node, [Finding(f"its name is taken by {other}", "Give it another name.")])


def _check_used(walk: _Walk, node: Node) -> None:
    if getattr(node, "on_error", "fail") == "dead-letter" and walk.graph.dead_letters() is None:
        advice = 'Say where: flow.dead_letters("dead-letters", FileSink(…)).'
        walk.report(node, [Finding("its dead letters go nowhere", advice)])
    if isinstance(node, SinkNode | StatefulNode) or walk.graph.consumers(node.id):
        return
    walk.report(
        node, [Finding("its rows go nowhere", 'Add .sink("name", …) to the stream, or drop it.')]
    )


def _typed(walk: _Walk, node: Node) -> TypedNode:
    match node:
        case SourceNode():
            return TypedNode(node, _source_row(walk, node))
        case UnionNode():
            return _union(walk, node)
        case SinkNode(inputs=()):
            return _dead_letters(walk, node)
        case _:
            return _continued(walk, node)


def _continued(walk: _Walk, node: Node) -> TypedNode:
    """An operator with one input."""
    assert not isinstance(node, SourceNode | UnionNode)
    # What an operator does not change it passes on: the row, the key beside it, the region.
    before = walk.typed[node.inputs[0]]
    after = replace(before, node=node, value=None, aggregates=(), handles=())
    match node:
        case WhereNode() | SplitNode():
            text = node.condition if isinstance(node, WhereNode) else node.conditions[-1]
            walk.report(node, [walk.resolver.condition(before.row, text)])
        case MapBatchesNode():
            after = _map_batches(walk, node, after)
        case SelectNode():
            after = replace(after, row=_select_row(walk, node, before.row))
        case WithColumnsNode():
            after = replace(after, row=_with_columns_row(walk, node, before.row))
        case KeyByNode():
            after = replace(after, next_key=_key(walk, node, before.row))
        case DistributeNode():
            after = _distribute(walk, node, after)
        case LocalNode():
            after = replace(after, key=None, next_key=None, region=None)
        case AggregateNode() | StatefulMapNode() | StatefulBatchesNode() | ProcessNode():
            after = _stateful(walk, node, _in_region(walk, node, after))
        case SinkNode():
            walk.report(node, [_refusal(node, before.row)])
        case _:
            assert_never(node)
    return after


def _stateful(walk: _Walk, node: StatefulNode, after: TypedNode) -> TypedNode:
    match node:
        case AggregateNode():
            return _aggregate(walk, node, after)
        case StatefulMapNode() | StatefulBatchesNode():
            return _with_function(walk, node, after)
        case ProcessNode():
            return _process(walk, node, after)


def _new_row(
    walk: _Walk, node: Node, columns: Iterable[Column], known: RowType, *, open: bool = False
) -> RowType:
    """The row an operator gives; columns that it did not introduce are not reported again."""
    row, clashes = distinct_row(tuple(columns), open=open)
    introduced = [c for c in row.columns if known.find(c.name) != c]
    walk.report(node, [*clashes, *column_findings(introduced)])
    return supported_row(row)


def _source_row(walk: _Walk, node: SourceNode) -> RowType:
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
    return _new_row(walk, node, RowType.of(schema).columns, RowType(()))


def _refusal(node: SinkNode, row: RowType) -> Finding | None:
    schema = row.schema()
    text = None if schema is None else node.sink.refuses(schema)
    if text is None:
        return None
    return Finding(
        f"it cannot take these rows: {text}", "Change the columns with .select before it."
    )


def _select_row(walk: _Walk, node: SelectNode, row: RowType) -> RowType:
    if not node.expressions:
        walk.report(node, [Finding("it selects nothing", 'Name columns, e.g. .select("id").')])
        return UNKNOWN_ROW
    resolved = walk.resolver.columns(row, [(None, text) for text in node.expressions])
    walk.report(node, resolved.findings)
    return _new_row(walk, node, resolved.columns, row, open=resolved.open)


def _with_columns_row(walk: _Walk, node: WithColumnsNode, row: RowType) -> RowType:
    if not node.columns:
        walk.report(node, [Finding("it adds nothing", 'Name columns, e.g. twice="amount * 2".')])
    resolved = walk.resolver.named(row, node.columns)
    walk.report(node, resolved.findings)
    added, clashes = distinct_row(resolved.columns)
    walk.report(node, clashes)
    kept = [added.find(column.name) or column for column in row.columns]
    new = [column for column in added.columns if row.find(column.name) is None]
    return _new_row(walk, node, [*kept, *new], row, open=row.open or added.open)


def _key(walk: _Walk, node: KeyByNode, row: RowType) -> RowType:
    if not node.keys:
        walk.report(node, [Finding("it has no key", 'Name key columns, e.g. "customer".')])
        return UNKNOWN_ROW
    named = [(name, text) for name, text in node.keys if name]
    for name, text in node.keys:
        if not name:
            advice = f'Give it one, e.g. part="{text}".'
            walk.report(node, [Finding(f'the key "{text}" has no name', advice)])
    resolved = walk.resolver.named(row, named)
    walk.report(node, resolved.findings)
    key, clashes = distinct_row(resolved.columns, open=len(named) < len(node.keys))
    walk.report(node, clashes)
    for column in key.columns:
        # A type that cannot be a key needs no second word about what else it cannot be.
        refused = [] if column.field is None else key_findings(column.field)
        walk.report(node, refused or column_findings([column], "key"))
    return supported_row(key)


def _distribute(walk: _Walk, node: DistributeNode, after: TypedNode) -> TypedNode:
    if after.next_key is None:
        advice = 'Call .key_by("column") before it, or use .key_distribute("name", "column").'
        walk.report(node, [Finding("there is no key_by before it", advice)])
    key = UNKNOWN_ROW if after.next_key is None else after.next_key
    return replace(after, key=key, next_key=None, region=node.id)


def _in_region(walk: _Walk, node: StatefulNode, after: TypedNode) -> TypedNode:
    """The node with a key to keep state by; reports where there is none."""
    if after.key is not None and after.next_key is None:
        return after
    if after.next_key is not None:
        finding = Finding(
            "key_by alone does not bring the rows of a key together",
            'Add .distribute_by_key("name") after key_by, or use .key_distribute("name", …).',
        )
    elif _after_local(walk, node):
        finding = Finding(
            "it keeps state after local(), which ended the region",
            'Call .key_distribute("name", "column") between local() and it, or drop local().',
        )
    else:
        finding = Finding(
            "it keeps state, and its rows are not distributed by a key",
            'Call .key_distribute("name", "column") before it.',
        )
    walk.report(node, [finding])
    # An unknown key: the operators behind it lack the same distribution and are not reported.
    return replace(after, key=UNKNOWN_ROW, next_key=None)


def _after_local(walk: _Walk, node: Node) -> bool:
    while node.inputs:
        node = walk.graph.node(node.inputs[0])
        if isinstance(node, LocalNode):
            return True
    return False


def _aggregate(walk: _Walk, node: AggregateNode, after: TypedNode) -> TypedNode:
    if not node.columns:
        walk.report(node, [Finding("it aggregates nothing", 'Name columns, e.g. n="count(*)".')])
    key = UNKNOWN_ROW if after.key is None else after.key
    aggregates = [
        aggregate
        for name, text in node.columns
        if (aggregate := _aggregate_column(walk, node, after.row, name, text)) is not None
    ]
    names = [name for name, _ in node.columns]
    found = {aggregate.name: aggregate.field for aggregate in aggregates}
    clashing = [name for name in names if key.find(name) is not None]
    for name in clashing:
        what = f'column "{name}" has the name of a key column, which is in the output already'
        walk.report(node, [Finding(what, "Give it another name.")])
    columns = [Column(name, found.get(name)) for name in names if name not in clashing]
    row = _new_row(walk, node, [*key.columns, *columns], key, open=key.open)
    return replace(after, row=row, aggregates=tuple(aggregates))


def _aggregate_column(
    walk: _Walk, node: AggregateNode, row: RowType, name: str, text: str
) -> AggregateColumn | None:
    """One aggregate with its types, as far as they are known; None after a report."""
    try:
        aggregate = parse_aggregate(text)
        if aggregate.condition is not None:
            refused = walk.resolver.condition(row, aggregate.condition)
            walk.report(node, [refused])
            if refused is not None:
                return None
        arguments: tuple[Column, ...] = ()
        if aggregate.arguments:
            resolved = walk.resolver.named(row, [(name, part) for part in aggregate.arguments])
            walk.report(node, resolved.findings)
            if resolved.findings:
                return None
            arguments = resolved.columns
        for argument in arguments:
            if argument.field is not None:
                refuse_collated(aggregate, argument.field)
        types = tuple(argument.type for argument in arguments)
        type_ = result_type(aggregate, types)
    except InvalidAggregate as error:
        walk.report(node, [from_error(error, f'column "{name}": ', "Use another aggregate.")])
        return None
    result = None if type_ is None else pa.field(name, type_, nullable=is_nullable(aggregate))
    return AggregateColumn(name, aggregate, types, result)


def _with_function(
    walk: _Walk, node: StatefulMapNode | StatefulBatchesNode, after: TypedNode
) -> TypedNode:
    if isinstance(node, StatefulMapNode):
        walk.report(node, [function_finding(node.function)])
    else:
        walk.report(node, [batches_function_finding(node.function)])
    value = None if node.state is None else _schema(walk, node, "state", node.state)
    row = _output_row(walk, node)
    if isinstance(node, StatefulBatchesNode) and value is not None:
        state = RowType.of(value)
        clashing = [name for name in (KEY, FORGET) if state.find(name) or row.find(name)]
        clashing += [c.name for c in (after.key or UNKNOWN_ROW).columns if state.find(c.name)]
        for name in clashing:
            what = f'column "{name}" would stand twice in a table that the function gets'
            walk.report(node, [Finding(what, "Rename it.")])
    return replace(after, row=row, value=value)


def _output_row(
    walk: _Walk, node: StatefulMapNode | StatefulBatchesNode | ProcessNode | MapBatchesNode
) -> RowType:
    output = _schema(walk, node, "output", node.output)
    return UNKNOWN_ROW if output is None else distinct_row(RowType.of(output).columns)[0]


def _process(walk: _Walk, node: ProcessNode, after: TypedNode) -> TypedNode:
    handles = []
    for attribute, handle in handles_of(node.process).items():
        findings = [name_finding(attribute)]
        value = handle.value if isinstance(handle, MapState) else handle.schema
        typed = None if value is None else _schema(walk, node, attribute, value)
        subkey = None
        if isinstance(handle, MapState):
            subkey = _schema(walk, node, f"{attribute}, key", handle.key)
            findings += [f for field in subkey or () for f in key_findings(field)]
        try:
            ttl = ttl_ns(handle.ttl)
        except (TypeError, ValueError) as error:
            findings.append(Finding(f"{attribute}: {error}", "Correct its ttl."))
            ttl = None
        walk.report(node, findings)
        handles.append(TypedHandle(attribute, type(handle), typed, subkey, ttl))
    _check_states(walk, node, handles)
    if not overrides(node.process, "on_rows"):
        what = f"class {node.process.__qualname__} has no on_rows"
        walk.report(node, [Finding(what, "Add one: def on_rows(self, key, rows): ….")])
    if overrides(node.process, "save") is not overrides(node.process, "load"):
        what = f"class {node.process.__qualname__} has only one of load and save"
        walk.report(node, [Finding(what, "Add the other.")])
    return replace(after, row=_output_row(walk, node), handles=tuple(handles))


def _check_states(walk: _Walk, node: ProcessNode, handles: Iterable[TypedHandle]) -> None:
    """A handle's state has a name like an operator's: nobody else may have it."""
    for handle in handles:
        name = handle.state_of(node.name)
        earlier = walk.names.setdefault(name.lower(), node)
        if earlier is not node:
            other = label(walk.graph, earlier)
            what = f"its state {name!r} has the name of {other}"
            walk.report(node, [Finding(what, "Rename one of them.")])


def _dead_letters(walk: _Walk, node: SinkNode) -> TypedNode:
    row = RowType.of(DEAD_LETTER_SCHEMA)
    walk.report(node, [_refusal(node, row)])
    first = walk.graph.dead_letters()
    if first is not None and first is not node:
        what = f"dead letters go to {label(walk.graph, first)} already"
        walk.report(node, [Finding(what, "Keep one of the two.")])
    return TypedNode(node, row)


def _union(walk: _Walk, node: UnionNode) -> TypedNode:
    inputs = [walk.typed[id] for id in node.inputs]
    if not inputs:
        walk.report(node, [Finding("it unites nothing", "Name streams, e.g. a=…, b=….")])
        return TypedNode(node, UNKNOWN_ROW)
    row, findings = united_row([typed.row for typed in inputs], node.tag and node.tag[0])
    walk.report(node, findings)
    tagged = [] if node.tag is None else [c for c in row.columns if c.name == node.tag[0]]
    walk.report(node, column_findings(tagged))
    after, findings = united_key(inputs, TypedNode(node, row))
    walk.report(node, findings)
    return after


def _map_batches(walk: _Walk, node: MapBatchesNode, after: TypedNode) -> TypedNode:
    walk.report(node, [batch_function_finding(node.function)])
    if after.next_key is not None:
        advice = "Call .key_by after it: the key is computed from the rows that it gives."
        walk.report(node, [Finding("there is a key_by before it", advice)])
    row = _output_row(walk, node)
    if row.find(ORD) is not None:
        walk.report(node, [Finding(f'output column "{ORD}" names the input row', "Rename it.")])
    return replace(after, row=row, next_key=None)


def _schema(walk: _Walk, node: Node, what: str, text: str) -> pa.Schema | None:
    """The schema of a text; None after a report that it cannot be read."""
    try:
        schema = parse_schema(text)
    except InvalidSchema as error:
        walk.report(node, [from_error(error, f"{what}: ", "Correct it.")])
        return None
    row, clashes = distinct_row(RowType.of(schema).columns)
    walk.report(node, [Finding(f"{what}: {clash.what}", clash.do) for clash in clashes])
    walk.report(node, column_findings(row.columns, f"{what} column"))
    return schema
