"""From a typed dataflow to the operators that its tasks run."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from anabranch.dataflow.graph import AggregateNode, StatefulMapNode
from anabranch.dataflow.typed import Typed
from anabranch.operators.aggregate import Aggregate, aggregate_columns
from anabranch.operators.codec import state_codec
from anabranch.operators.stateful_map import StatefulMap

StatefulOperator: TypeAlias = Aggregate | StatefulMap


def build(typed: Typed, node: AggregateNode | StatefulMapNode) -> StatefulOperator:
    """The operator of a node."""
    output = typed.schema(node.id)
    if isinstance(node, AggregateNode):
        return Aggregate(node.name, aggregate_columns(typed, node.id), output)
    return StatefulMap(node.name, node.function, state_codec(typed.value(node.id)), output)


def state_schema(operator: StatefulOperator) -> pa.Schema:
    """The state columns that an operator keeps per key."""
    return operator.state if isinstance(operator, Aggregate) else operator.codec.schema
