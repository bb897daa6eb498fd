"""Builds the operators that tasks run from a typed dataflow."""

from __future__ import annotations

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
from anabranch.operators.aggregate import Aggregate, aggregate_columns
from anabranch.operators.codec import SingleColumn, state_codec
from anabranch.operators.process import SAVED, HandleSpec, ProcessOperator
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from anabranch.operators.states import StatefulOperator


def build(typed: Typed, node: StatefulNode) -> StatefulOperator:
    """Build the operator of a node."""
    output, value = typed.schema(node.id), typed.nodes[node.id].value
    match node:
        case AggregateNode():
            return Aggregate(node.name, aggregate_columns(typed, node.id), output, node.ttl_ns)
        case StatefulMapNode():
            return StatefulMap(node.name, node.function, state_codec(value), output, node.ttl_ns)
        case StatefulBatchesNode():
            assert value is not None
            return StatefulBatches(node.name, node.function, value, output, node.ttl_ns)
        case ProcessNode():
            handles = tuple(_handle(node.name, handle) for handle in typed.nodes[node.id].handles)
            return ProcessOperator(node.name, node.process, handles, _saved_spec(node), output)


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
