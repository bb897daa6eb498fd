"""How event time travels through a dataflow: from its sources to every stateful operator."""

from __future__ import annotations

from anabranch.dataflow.graph import JoinNode, NamedNode, ProcessNode, StatefulNode, TimestampsNode
from anabranch.dataflow.handles import overrides
from anabranch.dataflow.timestamps import inputs_before, timed_inputs
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.joins.build import build_join
from anabranch.protocol.time_graph import GraphOperator, TimeGraph


def time_graph(typed: Typed) -> TimeGraph:
    """The inputs of event time and the operators that it reaches.

    Empty if no rows have times and no operator has timers or handles the end: such a dataflow has
    no frontiers.
    """
    graph = typed.graph
    timed = any(isinstance(node, TimestampsNode) for node in graph.nodes)
    if not timed and not any(map(_is_notified, graph.stateful())):
        return TimeGraph()
    return TimeGraph(
        timed_inputs(graph),
        tuple(
            GraphOperator(
                node.name, _region(typed, node), inputs_before(graph, node.id), _lag_us(typed, node)
            )
            for node in graph.stateful()
        ),
    )


def _is_notified(node: StatefulNode) -> bool:
    """Whether an operator is told of its timers or of the end of its input."""
    return isinstance(node, ProcessNode) and any(
        overrides(node.process, method) for method in ("on_end", "on_notify")
    )


def _lag_us(typed: Typed, node: StatefulNode) -> int:
    """How far an operator's output may be behind its frontier: by how long it waits for rows."""
    return build_join(typed, node).lag_us if isinstance(node, JoinNode) else 0


def _region(typed: Typed, node: StatefulNode) -> str:
    region = typed.region(node.id)
    opened = None if region is None else typed.graph.node(region)
    assert isinstance(opened, NamedNode), "a stateful operator is in a region"
    return opened.name
