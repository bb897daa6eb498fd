"""The kinds of stateful operators: how they are built and run, and the states they keep.

All kinds have one form: named states, each with a key, values, and optionally a sub-key and a
time-to-live; and a function from rows and states to rows and changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.graph import (
    AggregateNode,
    AnyJoinNode,
    ApplyNode,
    AsOfJoinNode,
    DedupNode,
    JoinNode,
    LatestJoinNode,
    ProcessNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
    TopNode,
)
from anabranch.dataflow.handles import ValueState, overrides, timer_state
from anabranch.dataflow.types.row_type import same_name
from anabranch.dataflow.types.typed import Typed, TypedHandle
from anabranch.operators.aggregate import Aggregate, aggregate_columns
from anabranch.operators.codec import AnyValue, SingleColumn, StateCodec, state_codec
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.dedup import Dedup
from anabranch.operators.event_kinds import TimedKind, run_mixed, run_single
from anabranch.operators.joins.build import AnyJoin, build_join
from anabranch.operators.process import SAVED, HandleSpec, ProcessOperator
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedOperator, TimedResult
from anabranch.operators.timers.due_timers import TIMER_NAME, TIMER_VALUE
from anabranch.operators.timers.timed_process import TimedProcess, run_process
from anabranch.operators.windows.apply import WindowApply
from anabranch.operators.windows.build import build_windowed
from anabranch.operators.windows.top import RunningTop, WindowedTop
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate

WindowedOperator: TypeAlias = WindowedAggregate | WindowedTop | WindowApply
StatefulOperator: TypeAlias = (
    Aggregate
    | StatefulMap
    | StatefulBatches
    | ProcessOperator
    | RunningTop
    | WindowedOperator
    | AnyJoin
    | Dedup
)

_NONE = pa.schema([])


def build(typed: Typed, node: StatefulNode) -> StatefulOperator:
    """Build the operator of a node."""
    output, value = typed.schema(node.id), typed.nodes[node.id].value
    match node:
        case AggregateNode(window=None):
            columns = aggregate_columns(typed, node.id)
            return Aggregate(node.name, columns, output, node.ttl_ns, node.clock)
        case AggregateNode() | TopNode() | ApplyNode():
            return build_windowed(typed, node)
        case StatefulMapNode():
            return StatefulMap(
                node.name,
                node.function,
                state_codec(value),
                output,
                node.ttl_ns,
                node.clock,
                _time_column(node.time, output),
            )
        case StatefulBatchesNode():
            assert value is not None
            return StatefulBatches(
                node.name,
                node.function,
                value,
                output,
                node.ttl_ns,
                node.clock,
                _time_column(node.time, output),
            )
        case ProcessNode():
            return ProcessOperator(
                node.name,
                node.process,
                tuple(_handle(node.name, handle) for handle in typed.nodes[node.id].handles),
                _saved_spec(node),
                output,
                typed.nodes[node.inputs[0]].timed,
                _time_column(node.time, output),
            )
        case JoinNode() | AsOfJoinNode() | LatestJoinNode() | DedupNode():
            return _join_or_dedup(typed, node)


def _time_column(name: str | None, output: pa.Schema) -> str | None:
    """The output column with the times of rows, as the output spells it."""
    return None if name is None else next(n for n in output.names if same_name(n, name))


def _join_or_dedup(typed: Typed, node: AnyJoinNode | DedupNode) -> AnyJoin | Dedup:
    if isinstance(node, DedupNode):
        return Dedup(node.name, node.within_us)
    return build_join(typed, node)


def _handle(operator: str, handle: TypedHandle) -> HandleSpec:
    return HandleSpec(
        handle.attribute,
        handle.state_of(operator),
        handle.kind,
        state_codec(handle.value),
        None if handle.subkey is None else state_codec(handle.subkey),
        handle.ttl_ns,
        handle.clock,
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
        timers = (_timers_shape(operator.name, clock) for clock in operator.timer_clocks)
        return (*(_of_handle(handle) for handle in operator.states), *timers)
    if isinstance(operator, RunningTop | WindowedOperator | AnyJoin | Dedup):
        return operator.shapes
    name, expires, clock = operator.name, operator.ttl_ns is not None, operator.clock
    match operator:
        case Aggregate():
            columns = (f"{column.name}={column.label}" for column in operator.columns)
            kind = f"aggregate({', '.join(columns)})"
            return (StateShape(name, kind, operator.state, _NONE, expires, clock=clock),)
        case StatefulMap(codec=codec):
            packed = _packed_columns(codec)
            return (StateShape(name, "stateful_map", codec.schema, _NONE, expires, packed, clock),)
        case StatefulBatches():
            kind = "stateful_batches"
            return (StateShape(name, kind, operator.state, _NONE, expires, clock=clock),)


def timed_form(operator: StatefulOperator) -> TimedOperator | None:
    """The operator as it runs in steps, if time concerns it; else None."""
    match operator:
        case ProcessOperator():
            return TimedProcess(operator) if operator.has_steps else None
        case Aggregate():
            return TimedKind(operator) if operator.clock == "event" else None
        case StatefulMap() | StatefulBatches():
            timed = operator.clock == "event" or operator.time is not None
            return TimedKind(operator) if timed else None
    return operator if isinstance(operator, TimedOperator) else None


def run_operator(
    operator: StatefulOperator,
    rows: Rows,
    states: Mapping[str, KeyedEntries],
    now_ns: int,
    dead: list[RowFailure] | None = None,
) -> tuple[Rows, dict[str, StateChanges]]:
    """Run an operator that time does not concern; return its output and each state's changes.

    ``now_ns`` is the clock of the step. With ``dead``, rows for which the user's function fails are
    added there and skipped.
    """
    match operator:
        case ProcessOperator():
            return run_process(operator, rows, states, now_ns, dead)
        case RunningTop():
            output, changes = operator.run(rows, states[operator.name])
        case Aggregate() | StatefulMap() | StatefulBatches():
            run = run_single if rows.fired is None else run_mixed
            output, changes = run(operator, rows, states[operator.name], dead)
        case _:
            raise AssertionError("operators over event time run by frontiers: see timed_form")
    return output, {} if changes is None else {operator.name: changes}


def run_step(
    operator: TimedOperator,
    rows: Rows | None,
    frontier: FrontierMove,
    states: Mapping[str, TimedEntries],
    dead: list[RowFailure] | None = None,
) -> TimedResult:
    """Run an operator that time concerns over a step. ``dead`` is as in ``run_operator``."""
    if isinstance(operator, TimedKind):
        return operator.step(rows, frontier, states, dead=dead)
    return operator.step(rows, frontier, states)


def _of_handle(handle: HandleSpec) -> StateShape:
    return StateShape(
        handle.state,
        f"process {handle.kind.__name__}",
        handle.codec.schema,
        handle.subkey_columns,
        handle.ttl_ns is not None,
        _packed_columns(handle.codec),
        handle.clock,
    )


def _timers_shape(operator: str, clock: Clock) -> StateShape:
    name, kind = timer_state(operator, clock), "process timers"
    return StateShape(name, kind, TIMER_VALUE, TIMER_NAME, expires=True, clock=clock, dues=True)


def _packed_columns(codec: StateCodec) -> tuple[str, ...]:
    return tuple(codec.schema.names) if isinstance(codec, AnyValue) else ()
