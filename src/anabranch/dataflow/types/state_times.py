"""The rules of event time for stateful operators: what needs it, and the column that gives it."""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.graph import AggregateNode, ProcessNode, StatefulNode
from anabranch.dataflow.types.schema import type_to_ddl
from anabranch.dataflow.types.typed import TypedNode

_ASSIGN = 'Call .assign_timestamps("column") after the source'


def time_findings(node: StatefulNode, after: TypedNode) -> list[Finding]:
    """What is wrong with a node's use of event time; ``after`` has its output."""
    findings = []
    if not after.timed:
        if isinstance(node, ProcessNode):
            lasting = [f"{h.attribute} expires" for h in after.handles if h.clock == "event"]
        else:
            lasting = ["it expires"] if node.clock == "event" else []
        do = f'{_ASSIGN}, or leave out clock="event".'
        findings += [Finding(f"{w} by event time, which its rows do not have", do) for w in lasting]
    if not isinstance(node, AggregateNode) and node.time is not None:
        findings += _column_findings(node.time, after)
    return findings


def _column_findings(name: str, after: TypedNode) -> list[Finding]:
    """What is wrong with the output column that gives event times."""
    if not after.timed:
        what = f'time="{name}" gives event times to rows that come from rows without'
        return [Finding(what, f"{_ASSIGN}, or leave out time=.")]
    column = after.row.find(name)
    if column is None:
        what = f'time="{name}" is no column of its output'
        return [] if after.row.open else [Finding(what, choose_among(name, after.row.names))]
    if column.type is None or pa.types.is_timestamp(column.type):
        return []
    what = f'time="{name}" has the type {type_to_ddl(column.type)}'
    return [Finding(what, "Declare it as timestamp in output=.")]
