"""Event times: where the rows of a source get them, and what such a place is called.

An *input* is where event time enters a dataflow: an ``assign_timestamps`` and a source whose rows
reach it. A source whose rows reach an operator without times is an input too.
"""

from __future__ import annotations

from enum import Enum
from functools import reduce
from operator import or_
from typing import Final, Literal, NamedTuple

from anabranch.dataflow.graph import Graph, GraphNode, SourceNode, StatefulNode, TimestampsNode
from anabranch.protocol.time_graph import TimedInput


class Arrival(Enum):
    """The type of ``ARRIVAL``."""

    ARRIVAL = "arrival"


ARRIVAL: Final[Literal[Arrival.ARRIVAL]] = Arrival.ARRIVAL
"""In place of a column: the time of a row is the clock of the step that reads it."""


class InputKey(NamedTuple):
    """The ids of an ``assign_timestamps`` and of a source; None for rows without times."""

    timestamps: int | None
    source: int


def input_names(graph: Graph) -> dict[InputKey, str]:
    """The name of every input: its source's, and with a number from the second one of a source on.

    Those with times come first, in graph order.
    """
    origins = _origins(graph)
    found = [
        InputKey(node.id, key.source)
        for node in graph.nodes
        if isinstance(node, TimestampsNode)
        for key in sorted(origins[node.inputs[0]], key=lambda key: key.source)
    ]
    plain = {key for node in graph.stateful() for key in origins[node.inputs[0]]}
    names: dict[InputKey, str] = {}
    for source in graph.sources():
        own = list(dict.fromkeys(key for key in found if key.source == source.id))
        untimed = InputKey(None, source.id)
        if untimed in plain or not own:
            own.append(untimed)
        for number, key in enumerate(own, start=1):
            names[key] = source.name if number == 1 else f"{source.name}#{number}"
    return names


def timed_inputs(graph: Graph) -> tuple[TimedInput, ...]:
    """The inputs of a dataflow."""
    return tuple(_input(graph, key, name) for key, name in input_names(graph).items())


def inputs_before(graph: Graph, id: int) -> tuple[str, ...]:
    """The nearest inputs and stateful operators upstream of a stateful operator, by their names."""
    names, found = input_names(graph), dict[str, None]()
    waiting = list(reversed(graph.node(id).inputs))
    while waiting:
        node = graph.node(waiting.pop())
        if isinstance(node, StatefulNode):
            found[node.name] = None
        elif isinstance(node, SourceNode):
            found[names[InputKey(None, node.id)]] = None
        elif isinstance(node, TimestampsNode):
            found.update((name, None) for key, name in names.items() if key[0] == node.id)
        else:
            waiting += reversed(node.inputs)
    return tuple(found)


def _input(graph: Graph, key: InputKey, name: str) -> TimedInput:
    source = graph.node(key.source)
    assert isinstance(source, SourceNode)
    if key.timestamps is None:
        return TimedInput(name, source.name, timed=False)
    node = graph.node(key.timestamps)
    assert isinstance(node, TimestampsNode)
    return TimedInput(name, source.name, True, node.lateness_us, node.idle_us)


def _origins(graph: Graph) -> list[frozenset[InputKey]]:
    """The inputs that each node's rows come from, if no stateful operator is in between."""
    found: list[frozenset[InputKey]] = []
    for node in graph.nodes:
        found.append(_origins_of(node, reduce(or_, (found[i] for i in node.inputs), frozenset())))
    return found


def _origins_of(node: GraphNode, before: frozenset[InputKey]) -> frozenset[InputKey]:
    if isinstance(node, SourceNode):
        return frozenset({InputKey(None, node.id)})
    if isinstance(node, TimestampsNode):
        return frozenset(InputKey(node.id, key.source) for key in before)
    return frozenset() if isinstance(node, StatefulNode) else before
