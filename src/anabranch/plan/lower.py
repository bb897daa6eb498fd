"""Lowering: from a typed dataflow to the levels of a step."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    Graph,
    KeyByNode,
    LocalNode,
    SelectNode,
    SinkNode,
    SourceNode,
    StatefulMapNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.dataflow.typed import Typed
from anabranch.operators.aggregate import Argument, aggregate_columns, depends_on_order
from anabranch.plan.physical import ChainNode, Edge, Group, Level, Physical, Region

NO_COLUMNS = pa.schema([])
UNKEYED = "-unkeyed"
"""The group of sinks without a region; no region can have a name like it."""


def lower(typed: Typed) -> Physical:
    """The physical form of a dataflow without problems."""
    return _Lowering(typed).physical()


@dataclass(frozen=True, slots=True)
class _Way:
    """A consumer's way back to its producer."""

    producer: int
    chain: tuple[ChainNode, ...]
    distribution: int | None


class _Lowering:
    def __init__(self, typed: Typed) -> None:
        self._typed = typed
        self._graph: Graph = typed.graph
        self._consumers = [
            node
            for node in self._graph.nodes
            if isinstance(node, AggregateNode | StatefulMapNode | SinkNode)
        ]
        self._ways = {node.id: self._way(node.inputs[0], node) for node in self._consumers}
        self._needs_order: dict[int, bool] = {}
        self._levels: dict[int, int] = {s.id: 0 for s in self._graph.sources()}
        for node in self._consumers:
            self._levels[node.id] = self._levels[self._ways[node.id].producer] + (
                1 if self._crosses(node.id) else 0
            )

    def physical(self) -> Physical:
        """Put the levels together."""
        crossing = [node.id for node in self._consumers if self._crosses(node.id)]
        edges = {c: self._edge(i + 1, c) for i, c in enumerate(crossing)}
        deepest = max(self._levels.values(), default=0)
        levels = [Level(0, False, (), ())]
        levels += [self._level(number, edges) for number in range(1, deepest + 1)]
        return Physical(
            self._graph,
            {node.id: self._typed.schema(node.id) for node in self._graph.nodes},
            tuple(levels),
            self._regions(),
            self._direct(),
        )

    def _way(self, start: int, consumer: object) -> _Way:
        """Walk up to the next operator that runs in Python, or to a source.

        Of several keys on the way only the one counts that the last distribution uses.
        """
        chain: list[ChainNode] = []
        distribution: int | None = None
        stateful = isinstance(consumer, AggregateNode | StatefulMapNode)
        keyed = False
        node = self._graph.node(start)
        while True:
            match node:
                case SourceNode() | AggregateNode() | StatefulMapNode():
                    return _Way(node.id, tuple(chain[::-1]), distribution)
                case DistributeNode():
                    # A sink takes rows wherever they are.
                    if stateful and distribution is None:
                        distribution = node.id
                case LocalNode():
                    pass
                case WhereNode() | SelectNode() | WithColumnsNode():
                    chain.append(node)
                case KeyByNode():
                    if distribution is not None and not keyed:
                        keyed = True
                        chain.append(node)
                case SinkNode():
                    raise AssertionError("a sink has no consumers")
            node = self._graph.node(node.inputs[0])

    def _crosses(self, consumer: int) -> bool:
        """Whether rows leave Python on their way to this consumer."""
        way = self._ways[consumer]
        from_source = isinstance(self._graph.node(way.producer), SourceNode)
        return (
            from_source
            or bool(way.chain)
            or way.distribution is not None
            or isinstance(self._graph.node(consumer), AggregateNode)
        )

    def _edge(self, number: int, consumer: int) -> Edge:
        way = self._ways[consumer]
        node = self._graph.node(consumer)
        region = self._region_name(consumer)
        keyed = region is not None and not isinstance(node, SinkNode)
        key = self._typed.key(consumer) if keyed else None
        arguments = self._arguments(consumer)
        columns = self._typed.schema(node.inputs[0])
        if arguments is not None:
            columns = pa.schema([(a.name, a.kind) for a in self._travelling(consumer)])
        ordered = self._ordered(consumer)
        return Edge(
            id=number,
            producer=way.producer,
            consumer=consumer,
            chain=way.chain,
            region=region,
            distributes=way.distribution is not None,
            columns=columns,
            keys=NO_COLUMNS if key is None else key,
            arguments=arguments,
            ordered=ordered,
            digits=self._digits(way.producer) if ordered else 0,
        )

    def _arguments(self, consumer: int) -> tuple[tuple[str, str], ...] | None:
        if not isinstance(self._graph.node(consumer), AggregateNode):
            return None
        return tuple((a.name, a.sql) for a in self._travelling(consumer))

    def _travelling(self, consumer: int) -> list[Argument]:
        """What travels to an aggregate, one of its columns after the other."""
        return [a for c in aggregate_columns(self._typed, consumer) for a in c.arguments]

    def _ordered(self, consumer: int) -> bool:
        """Whether this consumer, or anyone after it, needs to know the order of its rows."""
        known = self._needs_order.get(consumer)
        if known is None:
            known = self._sensitive(consumer) or any(
                self._ordered(c) for c, way in self._ways.items() if way.producer == consumer
            )
            self._needs_order[consumer] = known
        return known

    def _sensitive(self, consumer: int) -> bool:
        node = self._graph.node(consumer)
        if isinstance(node, AggregateNode):
            return any(depends_on_order(c) for c in aggregate_columns(self._typed, consumer))
        return isinstance(node, StatefulMapNode)

    def _digits(self, producer: int) -> int:
        node = self._graph.node(producer)
        if isinstance(node, SourceNode):
            return 0
        own = 1 if isinstance(node, StatefulMapNode) else 0
        return own + self._digits(self._ways[producer].producer)

    def _region_name(self, consumer: int) -> str | None:
        """The region in which a consumer's rows arrive: its own, or for a sink its producer's."""
        node = self._graph.node(consumer)
        if isinstance(node, SourceNode):
            return None
        if isinstance(node, SinkNode):
            return self._region_name(self._ways[consumer].producer)
        region = self._typed.region(consumer)
        assert region is not None
        distribution = self._graph.node(region)
        assert isinstance(distribution, DistributeNode)
        return distribution.name

    def _level(self, number: int, edges: dict[int, Edge]) -> Level:
        inputs = tuple(e for e in edges.values() if self._levels[e.consumer] == number)
        members: dict[str | None, list[int]] = {}
        for node in self._consumers:
            if self._levels[node.id] == number:
                members.setdefault(self._region_name(node.id), []).append(node.id)
        groups = tuple(
            Group(region or UNKEYED, region, tuple(ids)) for region, ids in members.items()
        )
        return Level(number, any(e.distributes for e in inputs), inputs, groups)

    def _regions(self) -> tuple[Region, ...]:
        found: dict[str, list[str]] = {}
        keys: dict[str, pa.Schema] = {}
        for node in self._consumers:
            if isinstance(node, SinkNode):
                continue
            name = self._region_name(node.id)
            assert name is not None
            found.setdefault(name, []).append(node.name)
            keys[name] = self._typed.key(node.id)
        return tuple(Region(name, keys[name], tuple(ids)) for name, ids in found.items())

    def _direct(self) -> dict[int, tuple[int, ...]]:
        straight: dict[int, list[int]] = {}
        for node in self._consumers:
            if not self._crosses(node.id):
                straight.setdefault(self._ways[node.id].producer, []).append(node.id)
        return {producer: tuple(ids) for producer, ids in straight.items()}
