"""How event time travels through a dataflow: from its sources to every stateful operator."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.dataflow.graph import Graph, NamedNode, ProcessNode, SourceNode, StatefulNode
from anabranch.dataflow.handles import overrides
from anabranch.dataflow.types.typed import Typed
from anabranch.protocol.time_graph import GraphOperator, TimedInput, TimeGraph


def time_graph(typed: Typed) -> TimeGraph:
    """The inputs of time and the operators that it reaches.

    Empty if no operator depends on event time and none handles the end: such a dataflow has no
    frontiers.
    """
    graph = typed.graph
    if not any(map(_handles_end, graph.stateful())):
        return TimeGraph()
    return TimeGraph(
        tuple(TimedInput(node.name, node.name, timed=False) for node in graph.sources()),
        tuple(
            GraphOperator(node.name, _region(typed, node), tuple(_nearest(graph, node)))
            for node in graph.stateful()
        ),
    )


def _handles_end(node: StatefulNode) -> bool:
    return isinstance(node, ProcessNode) and overrides(node.process, "on_end")


def _region(typed: Typed, node: StatefulNode) -> str:
    region = typed.region(node.id)
    opened = None if region is None else typed.graph.node(region)
    assert isinstance(opened, NamedNode), "a stateful operator is in a region"
    return opened.name


def _nearest(graph: Graph, node: StatefulNode) -> Iterator[str]:
    """The sources and stateful operators whose rows come to an operator, each once."""
    seen: set[int] = set()
    waiting = list(node.inputs)
    while waiting:
        before = graph.node(waiting.pop(0))
        if before.id in seen:
            continue
        seen.add(before.id)
        if isinstance(before, SourceNode | StatefulNode):
            yield before.name
        else:
            waiting += before.inputs
