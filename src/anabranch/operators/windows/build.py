"""Builds the operators over windows, and ``top`` without one, from their nodes."""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.graph import AggregateNode, ApplyNode, StatefulNode, TopNode
from anabranch.dataflow.order_by import OrderColumn
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.windows import SessionWindow, SlidingWindow, TumblingWindow, Window
from anabranch.operators.aggregate import aggregate_columns
from anabranch.operators.windows.apply import WindowApply
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.top import RunningTop, TopRows, WindowedTop
from anabranch.operators.windows.window_function import WindowFunction
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate


def build_windowed(
    typed: Typed, node: AggregateNode | TopNode | ApplyNode
) -> WindowedAggregate | WindowedTop | RunningTop | WindowApply:
    """Build the operator of a node; an aggregate must have a window."""
    key, output = _key(typed, node), typed.schema(node.id)
    match node:
        case AggregateNode():
            assert node.window is not None
            columns, changes = aggregate_columns(typed, node.id), node.emit == "changes"
            windows = window_form(node.window)
            return WindowedAggregate(node.name, windows, columns, key, output, changes)
        case TopNode(window=None):
            return RunningTop(node.name, _top_rows(typed, node), node.ttl_ns)
        case TopNode():
            assert node.window is not None
            windows = window_form(node.window)
            return WindowedTop(node.name, windows, _top_rows(typed, node), key)
        case ApplyNode():
            rows = typed.schema(node.inputs[0])
            function = WindowFunction(node.name, node.function, rows, output)
            return WindowApply(node.name, window_form(node.window), function, key)


def window_form(window: Window) -> Panes | SessionGap:
    """Windows as operators compute with them."""
    match window:
        case TumblingWindow(length, offset):
            return Panes(length, length, offset)
        case SlidingWindow(length, every, offset):
            return Panes(length, every, offset)
        case SessionWindow(gap):
            return SessionGap(gap)


def _top_rows(typed: Typed, node: TopNode) -> TopRows:
    rows = typed.schema(node.inputs[0])
    # Users may spell a name in upper or lower case, Arrow knows one.
    names = {name.lower(): name for name in rows.names}
    by = tuple(OrderColumn(names[each.name.lower()], each.descending) for each in node.by)
    return TopRows(node.count, by, node.ties, rows, typed.schema(node.id))


def _key(typed: Typed, node: StatefulNode) -> pa.Schema:
    key = typed.key(node.id)
    assert key is not None
    return key
