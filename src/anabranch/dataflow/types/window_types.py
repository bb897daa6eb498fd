"""Typing of operators over windows, and of ``top`` without one."""

from __future__ import annotations

import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.functions import APPLY_SIGNATURE, function_finding
from anabranch.dataflow.graph import AggregateNode, ApplyNode, TopNode, label
from anabranch.dataflow.naming import WINDOW
from anabranch.dataflow.types.event_times import untimed_finding
from anabranch.dataflow.types.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.types.schema import type_text
from anabranch.dataflow.types.typed import TypedNode
from anabranch.dataflow.validation import Validation, new_row, output_row
from anabranch.dataflow.windows import WINDOW_END, WINDOW_START, SessionWindow

RANK = "rank"
ROWS = ".rows"
"""What the name of the state in which ``apply`` keeps rows ends with."""

WINDOW_COLUMNS = tuple(
    Column(name, pa.field(name, pa.timestamp("us", "UTC"))) for name in (WINDOW_START, WINDOW_END)
)
_RANK = Column(RANK, pa.field(RANK, pa.int32(), nullable=False))


def aggregate_findings(walk: Validation, node: AggregateNode) -> list[Finding | None]:
    """What is wrong with the window of an aggregate."""
    findings = [untimed_finding(walk, node)]
    key = walk.typed[node.inputs[0]].key
    for column in WINDOW_COLUMNS:
        if key is not None and key.find(column.name) is not None:
            what = f'the key has a column "{column.name}", which the output gets too'
            findings.append(Finding(what, 'Name it otherwise, e.g. key_distribute("r", w="…").'))
    if isinstance(node.window, SessionWindow) and node.emit == "changes":
        what = "sessions cannot emit changes: those that merge would have to be taken back"
        findings.append(Finding(what, 'Use emit="final", or a tumbling window.'))
    return findings


def type_top(walk: Validation, node: TopNode, after: TypedNode) -> TypedNode:
    """Type a ``top``: the input's columns, the window's if the input has none, and the rank."""
    given = after.row
    if node.window is not None:
        walk.report(node, [untimed_finding(walk, node)])
    walk.report(node, _by_findings(node, given))
    if given.find(RANK) is not None:
        what = f'its rows have a column "{RANK}", which the output gets too'
        walk.report(node, [Finding(what, "Rename it with .select before top.")])
        return after
    has_window = any(given.find(column.name) is not None for column in WINDOW_COLUMNS)
    window = () if node.window is None or has_window else WINDOW_COLUMNS
    row = new_row(walk, node, [*given.columns, *window, _RANK], given, open=given.open)
    return replace(after, row=row)


def _by_findings(node: TopNode, row: RowType) -> list[Finding]:
    """Why rows cannot be ordered by the columns of a ``top``."""
    if not node.by:
        return [Finding("by: there is no column", 'Name one, e.g. by="price desc".')]
    found = []
    for column in node.by:
        known = row.find(column.name)
        if known is None and not row.open:
            what = f'by: there is no column "{column.name}"'
            found.append(Finding(what, choose_among(column.name, row.names)))
        elif known is not None and known.type is not None and _holds_map(known.type):
            what = f'by: column "{column.name}" is {type_text(known.type)}, which has no order'
            found.append(Finding(what, "Order by another column."))
    return found


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_map(part.type) for part in kind)
    if pa.types.is_list(kind):
        return _holds_map(kind.value_type)
    return bool(pa.types.is_map(kind))


def type_apply(walk: Validation, node: ApplyNode, after: TypedNode) -> TypedNode:
    """Type an ``apply``: its function and its output."""
    walk.report(
        node, [untimed_finding(walk, node), function_finding(node.function, APPLY_SIGNATURE)]
    )
    output = output_row(walk, node)
    key = UNKNOWN_ROW if after.key is None else after.key
    for name in (WINDOW_START, WINDOW_END, WINDOW):
        if after.row.find(name) is not None or key.find(name) is not None:
            what = f'column "{name}" would appear twice in the table that the function gets'
            walk.report(node, [Finding(what, "Rename it with .select before apply.")])
    if output.find(WINDOW) is not None:
        what = f'output column "{WINDOW}" names the window of a row'
        walk.report(node, [Finding(what, "Leave it out, or rename it.")])
    _check_rows_state(walk, node)
    return replace(after, row=output)


def _check_rows_state(walk: Validation, node: ApplyNode) -> None:
    """Report another operator with the name of the state that keeps the rows."""
    name = node.name + ROWS
    earlier = walk.names.setdefault(name.lower(), node)
    if earlier is not node:
        what = f"its state {name!r} has the name of {label(walk.graph, earlier)}"
        walk.report(node, [Finding(what, "Rename one of them.")])
