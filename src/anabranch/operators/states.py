"""The kinds of stateful operators: how they are built and run, and the states they keep.

All kinds have one form: named states, each with a key, values, and optionally a sub-key and a
time-to-live; and a function from rows and states to rows and changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from anabranch.dataflow.graph import (
    AggregateNode,
    ProcessNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
)
from anabranch.dataflow.handles import ValueState, overrides
from anabranch.dataflow.types.typed import Typed, TypedHandle
from anabranch.dataflow.windows import SessionWindow, SlidingWindow, TumblingWindow, Window
from anabranch.operators.aggregate import Aggregate, aggregate_columns
from anabranch.operators.codec import AnyValue, SingleColumn, StateCodec, state_codec
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.process import SAVED, HandleSpec, ProcessOperator
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from anabranch.operators.timed import TimedOperator
from anabranch.operators.windows.apply import WindowApply
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.top import RunningTop, WindowedTop
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate

WindowedOperator: TypeAlias = WindowedAggregate | WindowedTop | WindowApply
StatefulOperator: TypeAlias = (
    Aggregate | StatefulMap | StatefulBatches | ProcessOperator | RunningTop | WindowedOperator
)

_NONE = pa.schema([])


def build(typed: Typed, node: StatefulNode) -> StatefulOperator:
    """Build the operator of a node."""
    output, value = typed.schema(node.id), typed.nodes[node.id].value
    match node:
        case AggregateNode(window=None):
            return Aggregate(node.name, aggregate_columns(typed, node.id), output, node.ttl_ns)
        case AggregateNode():
            return _windowed_aggregate(typed, node)
        case StatefulMapNode():
            return StatefulMap(node.name, node.function, state_codec(value), output, node.ttl_ns)
        case StatefulBatchesNode():
            assert value is not None
            return StatefulBatches(node.name, node.function, value, output, node.ttl_ns)
        case ProcessNode():
            handles = tuple(_handle(node.name, handle) for handle in typed.nodes[node.id].handles)
            return ProcessOperator(node.name, node.process, handles, _saved_spec(node), output)


def _windowed_aggregate(typed: Typed, node: AggregateNode) -> WindowedAggregate:
    key = typed.key(node.id)
    assert key is not None
    assert node.window is not None
    return WindowedAggregate(
        node.name,
        window_form(node.window),
        aggregate_columns(typed, node.id),
        key,
        typed.schema(node.id),
        node.emit == "changes",
    )


def window_form(window: Window) -> Panes | SessionGap:
    """Windows as operators compute with them."""
    match window:
        case TumblingWindow(length, offset):
            return Panes(length, length, offset)
        case SlidingWindow(length, every, offset):
            return Panes(length, every, offset)
        case SessionWindow(gap):
            return SessionGap(gap)


def _handle(operator: str, handle: TypedHandle) -> HandleSpec:
    return HandleSpec(
        handle.attribute,
        handle.state_of(operator),
        handle.kind,
        state_codec(handle.value),
        None if handle.subkey is None else state_codec(handle.subkey),
        handle.ttl_ns,
    )


def _saved_spec(node: ProcessNode) -> HandleSpec | None:
    """The state that a class keeps outside its handles, by ``save``."""
    if not overrides(node.process, "save"):
        return None
    codec = SingleColumn(pa.schema([pa.field(SAVED, pa.binary())]))
    return HandleSpec(SAVED, node.name, ValueState, codec, None, None)


def state_shapes(operator: StatefulOperator) -> tuple[StateShape, ...]:
    """The states that an operator keeps."""
    if isinstance(operator, ProcessOperator):
        saved = () if operator.saved is None else (operator.saved,)
        return tuple(_of_handle(handle) for handle in (*operator.handles, *saved))
    if isinstance(operator, RunningTop | WindowedOperator):
        return operator.shapes
    name, expires = operator.name, operator.ttl_ns is not None
    match operator:
        case Aggregate():
            columns = (f"{column.name}={column.label}" for column in operator.columns)
            kind = f"aggregate({', '.join(columns)})"
            return (StateShape(name, kind, operator.state, _NONE, expires),)
        case StatefulMap(codec=codec):
            packed = _packed_columns(codec)
            return (StateShape(name, "stateful_map", codec.schema, _NONE, expires, packed),)
        case StatefulBatches():
            return (StateShape(name, "stateful_batches", operator.state, _NONE, expires),)


def timed_form(operator: object) -> TimedOperator | None:
    """The operator, if it depends on event time."""
    return operator if isinstance(operator, TimedOperator) else None


def run_operator(
    operator: StatefulOperator,
    rows: Rows,
    states: Mapping[str, KeyedEntries],
    dead: list[RowFailure] | None = None,
) -> tuple[Rows, dict[str, StateChanges]]:
    """Run an operator over its rows; return its output and the changes of each state.

    With ``dead``, rows for which the user's function fails are added there and skipped.
    """
    match operator:
        case ProcessOperator():
            return operator.run(rows, states, dead)
        case StatefulMap():
            output, changes = operator.run(rows, states[operator.name], dead)
            return output, {operator.name: changes}
        case Aggregate():
            output, changes = operator.run(rows, states[operator.name])
            return output, {operator.name: changes}
        case StatefulBatches():
            output, new = operator.run(rows, states[operator.name], dead)
            return output, {} if new is None else {operator.name: new}
        case RunningTop():
            output, new = operator.run(rows, states[operator.name])
            return output, {} if new is None else {operator.name: new}
        case WindowedAggregate() | WindowedTop() | WindowApply():
            raise AssertionError("operators over event time run by frontiers: see timed_form")


def _of_handle(handle: HandleSpec) -> StateShape:
    return StateShape(
        handle.state,
        f"process {handle.kind.__name__}",
        handle.codec.schema,
        handle.subkey_columns,
        handle.ttl_ns is not None,
        _packed_columns(handle.codec),
    )


def _packed_columns(codec: StateCodec) -> tuple[str, ...]:
    return tuple(codec.schema.names) if isinstance(codec, AnyValue) else ()
