"""Typing of the stateful operators: their key, state and output."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.rules import (
    carried_columns,
    is_nullable,
    order_matters,
    refuse_collated,
    result_type,
)
from anabranch.dataflow.durations import clock_error, ttl_ns
from anabranch.dataflow.findings import Finding, from_error
from anabranch.dataflow.functions import (
    STATEFUL_BATCHES_SIGNATURE,
    STATEFUL_MAP_SIGNATURE,
    function_finding,
)
from anabranch.dataflow.graph import (
    AggregateNode,
    ApplyNode,
    AsOfJoinNode,
    DedupNode,
    GraphNode,
    JoinNode,
    LatestJoinNode,
    LocalNode,
    NamedNode,
    ProcessNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
    TopNode,
    label,
)
from anabranch.dataflow.handles import MapState, handles_of, overrides, timer_state
from anabranch.dataflow.naming import FORGET, KEY, ORD, name_finding
from anabranch.dataflow.order_by import order_findings
from anabranch.dataflow.types.event_times import untimed_finding
from anabranch.dataflow.types.join_type import join_states, length_findings, type_join
from anabranch.dataflow.types.keys import key_findings
from anabranch.dataflow.types.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.types.state_times import time_findings
from anabranch.dataflow.types.typed import TypedAggregate, TypedHandle, TypedNode
from anabranch.dataflow.types.window_types import (
    WINDOW_COLUMNS,
    aggregate_findings,
    type_apply,
    type_top,
)
from anabranch.dataflow.validation import Validation, new_row, output_row, read_schema
from anabranch.errors import InvalidAggregate

_SAVE = "Add load and save: handles move with their keys by themselves."


def type_stateful(walk: Validation, node: StatefulNode, before: TypedNode) -> TypedNode:
    """Type a stateful node: its key, state and output."""
    after = _in_region(walk, node, before)
    if node.order_by:
        walk.report(node, order_findings(before.row, node.order_by))
        after = replace(after, ordered=True)
    match node:
        case AggregateNode():
            after = _aggregate(walk, node, after)
        case TopNode():
            after = type_top(walk, node, after)
        case ApplyNode():
            after = type_apply(walk, node, after)
        case StatefulMapNode() | StatefulBatchesNode():
            after = _with_function(walk, node, after)
        case ProcessNode():
            after = _process(walk, node, after)
        case JoinNode() | AsOfJoinNode() | LatestJoinNode():
            after = type_join(walk, node, after)
            _check_states(walk, node, join_states(node))
        case DedupNode():
            walk.report(node, [untimed_finding(walk, node), *length_findings(node.within_us)])
    walk.report(node, time_findings(walk, node, after))
    finding = None if after.ordered else _order_finding(node, after)
    walk.report(node, [finding])
    # Operators behind it lack the same order: report it once.
    return after if finding is None else replace(after, ordered=True)


def _order_finding(node: StatefulNode, typed: TypedNode) -> Finding | None:
    """Why an operator cannot take rows whose order is unknown; None if it can."""
    what = "it depends on the order of its rows"
    if isinstance(node, AggregateNode):
        known = [column for column in typed.aggregates if column.field is not None]
        sensitive = [column.name for column in known if _depends_on_order(column)]
        if not sensitive:
            return None
        what = f'column "{sensitive[0]}" depends on the order of the rows'
    return Finding(
        f"{what}, which a transform before it does not return",
        f"Let the transform return the column {ORD} unchanged with each row, or order a key's "
        'rows of a step, e.g. order_by="at".',
    )


def _depends_on_order(column: TypedAggregate) -> bool:
    types = [kind for kind in column.argument_types if kind is not None]
    carried = carried_columns(column.aggregate, types)
    return order_matters(column.aggregate.function, [each.type for each in carried])


def _in_region(walk: Validation, node: StatefulNode, after: TypedNode) -> TypedNode:
    """The node with the key of its state; reports a missing key."""
    if after.key is not None and after.next_key is None:
        return after
    if after.next_key is not None:
        finding = Finding(
            "key_by alone does not bring a key's rows together",
            'Add .distribute_by_key("name") after key_by, or use .key_distribute("name", …).',
        )
    elif _after_local(walk, node):
        finding = Finding(
            "it keeps state after local(), which ended the region",
            'Call .key_distribute("name", "column") between local() and it, or drop local().',
        )
    else:
        finding = Finding(
            "it keeps state, but its rows are not distributed by key",
            'Call .key_distribute("name", "column") before it.',
        )
    walk.report(node, [finding])
    # Operators behind it lack the same distribution: an unknown key keeps them from being reported.
    return replace(after, key=UNKNOWN_ROW, next_key=None)


def _after_local(walk: Validation, node: GraphNode) -> bool:
    while node.inputs:
        node = walk.graph.node(node.inputs[0])
        if isinstance(node, LocalNode):
            return True
    return False


def _aggregate(walk: Validation, node: AggregateNode, after: TypedNode) -> TypedNode:
    if not node.columns:
        walk.report(node, [Finding("it aggregates nothing", 'Name columns, e.g. n="count(*)".')])
    key = UNKNOWN_ROW if after.key is None else after.key
    if node.window is not None:
        walk.report(node, aggregate_findings(walk, node))
    aggregates = [
        aggregate
        for name, text in node.columns
        if (aggregate := _aggregate_column(walk, node, after.row, name, text)) is not None
    ]
    names = [name for name, _ in node.columns]
    found = {aggregate.name: aggregate.field for aggregate in aggregates}
    window: tuple[Column, ...] = ()
    if node.window is not None:
        window = tuple(column for column in WINDOW_COLUMNS if key.find(column.name) is None)
    given = RowType((*key.columns, *window), open=key.open)
    clashing = [name for name in names if given.find(name) is not None]
    for name in clashing:
        whose = "key" if key.find(name) is not None else "window"
        what = f'column "{name}" has the name of a {whose} column, which the output already has'
        walk.report(node, [Finding(what, "Give it another name.")])
    columns = [Column(name, found.get(name)) for name in names if name not in clashing]
    row = new_row(walk, node, [*given.columns, *columns], given, open=key.open)
    return replace(after, row=row, aggregates=tuple(aggregates))


def _aggregate_column(
    walk: Validation, node: AggregateNode, row: RowType, name: str, text: str
) -> TypedAggregate | None:
    """One aggregate with its known types; None if a problem was reported."""
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
    return TypedAggregate(name, aggregate, types, result)


def _with_function(
    walk: Validation, node: StatefulMapNode | StatefulBatchesNode, after: TypedNode
) -> TypedNode:
    by_row = isinstance(node, StatefulMapNode)
    signature = STATEFUL_MAP_SIGNATURE if by_row else STATEFUL_BATCHES_SIGNATURE
    walk.report(node, [function_finding(node.function, signature)])
    value = None if node.state is None else read_schema(walk, node, "state", node.state)
    row = output_row(walk, node)
    if isinstance(node, StatefulBatchesNode) and value is not None:
        state = RowType.of(value)
        clashing = [name for name in (KEY, FORGET) if state.find(name) or row.find(name)]
        clashing += [c.name for c in (after.key or UNKNOWN_ROW).columns if state.find(c.name)]
        for name in clashing:
            what = f'column "{name}" would appear twice in a table that the function gets'
            walk.report(node, [Finding(what, "Rename it.")])
    return replace(after, row=row, value=value)


def _process(walk: Validation, node: ProcessNode, after: TypedNode) -> TypedNode:
    handles = []
    for attribute, handle in handles_of(node.process).items():
        findings = [name_finding(attribute)]
        value = handle.value if isinstance(handle, MapState) else handle.schema
        typed = None if value is None else read_schema(walk, node, attribute, value)
        subkey = None
        if isinstance(handle, MapState):
            subkey = read_schema(walk, node, f"{attribute}, key", handle.key)
            findings += [f for field in subkey or () for f in key_findings(field)]
            findings += [_struct_finding(attribute, field) for field in subkey or ()]
        try:
            ttl = ttl_ns(handle.ttl)
            misfit = clock_error(handle.clock, ttl)
            if misfit is not None:
                findings.append(Finding(f"{attribute}: {misfit}", "Correct its clock."))
        except (TypeError, ValueError) as error:
            findings.append(Finding(f"{attribute}: {error}", "Correct its ttl."))
            ttl = None
        walk.report(node, findings)
        handles.append(TypedHandle(attribute, type(handle), typed, subkey, ttl, handle.clock))
    names = [handle.state_of(node.name) for handle in handles]
    if overrides(node.process, "on_notify"):
        names += [timer_state(node.name, "event"), timer_state(node.name, "step")]
    _check_states(walk, node, names)
    name, has = node.process.__qualname__, partial(overrides, node.process)
    saves = has("save")
    for wrong, what, do in (
        (not has("on_rows"), "has no on_rows", "Add one: def on_rows(self, key, rows): …."),
        (saves is not has("load"), "has only one of load and save", "Add the other."),
        (has("on_collect") and not saves, "has on_collect but saves nothing", _SAVE),
        (has("on_acquire") and not saves, "has on_acquire but saves nothing", _SAVE),
        (
            has("on_end") and not (handles or saves),
            "has on_end but keeps no state",
            "Add a handle: on_end is called for the keys that have state.",
        ),
    ):
        walk.report(node, [Finding(f"class {name} {what}", do)] if wrong else [])
    return replace(after, row=output_row(walk, node), handles=tuple(handles))


def _struct_finding(attribute: str, field: pa.Field) -> Finding | None:
    """Reject a struct as map key: in Python it is a dictionary, which is not hashable."""
    if not pa.types.is_struct(field.type):
        return None
    return Finding(
        f'{attribute}: "{field.name}" is a struct, which cannot be the key of an entry',
        'List its fields as columns, e.g. MapState("a int, b string", …): the key is a tuple.',
    )


def _check_states(walk: Validation, node: NamedNode, names: Iterable[str]) -> None:
    """Report a state that has the name of another operator or state."""
    for name in names:
        earlier = walk.names.setdefault(name.lower(), node)
        if earlier is not node:
            other = label(walk.graph, earlier)
            what = f"its state {name!r} has the name of {other}"
            walk.report(node, [Finding(what, "Rename one of them.")])
