"""The rules of event time for stateful operators: what needs it, and the column that gives it."""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.graph import (
    AggregateNode,
    ProcessNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
)
from anabranch.dataflow.types.event_times import untimed_finding
from anabranch.dataflow.types.row_type import RowType
from anabranch.dataflow.types.schema import type_text
from anabranch.dataflow.types.typed import TypedNode
from anabranch.dataflow.validation import Validation


def time_findings(walk: Validation, node: StatefulNode, after: TypedNode) -> list[Finding]:
    """What is wrong with a node's use of event time; ``after`` has its output."""
    time = None
    if isinstance(node, StatefulMapNode | StatefulBatchesNode | ProcessNode):
        time = node.time
    needs = _needs(node, after) + ([] if time is None else [f'time="{time}"'])
    untimed = untimed_finding(walk, node) if needs else None
    if untimed is not None:
        return [Finding(f"{needs[0]} needs event time, but {untimed.what}", untimed.do)]
    return [] if time is None else _column_findings(time, after.row)


def _needs(node: StatefulNode, after: TypedNode) -> list[str]:
    """What of a node expires by event time."""
    if isinstance(node, ProcessNode):
        names = [handle.attribute for handle in after.handles if handle.clock == "event"]
        return [f'{name} has clock="event", which' for name in names]
    if not isinstance(node, AggregateNode | StatefulMapNode | StatefulBatchesNode):
        return []
    return ['clock="event"'] if node.clock == "event" else []


def _column_findings(name: str, output: RowType) -> list[Finding]:
    """What is wrong with the output column that gives event times."""
    column = output.find(name)
    if column is None:
        what = f'time="{name}" is no column of its output'
        return [] if output.open else [Finding(what, choose_among(name, output.names))]
    if column.type is None or pa.types.is_timestamp(column.type):
        return []
    what = f'time="{name}" is {type_text(column.type)}, which is no time'
    return [Finding(what, "Declare it as timestamp in output=.")]
