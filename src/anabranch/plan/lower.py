"""Lowering: from a typed dataflow to the levels of a step."""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    MapBatchesNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    TransformNode,
)
from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.aggregate import Argument, aggregate_columns, depends_on_order
from anabranch.operators.order.order_by import order_fields, ordering_of
from anabranch.plan.paths import RowPath, RowPaths
from anabranch.plan.physical import Edge, Group, Level, Physical, Region, Relay, Transform

NO_COLUMNS = pa.schema([])
UNKEYED = "-unkeyed"
"""The group of operators without a region; no region can have a name like it."""


def lower(typed: Typed) -> Physical:
    """The physical form of a dataflow without problems."""
    return _Lowering(typed).physical()


class _Lowering:
    def __init__(self, typed: Typed) -> None:
        self._typed = typed
        self._graph = typed.graph
        self._ways = RowPaths(typed.graph, lambda node: typed.region(node) is not None)
        self._needs_order: dict[int, bool] = {}

    def physical(self) -> Physical:
        """Put the levels together."""
        crossing = [
            (consumer, number, way)
            for consumer, paths in self._ways.paths.items()
            for number, way in enumerate(paths)
            if self._ways.leaves_task(consumer, way)
        ]
        edges = [self._edge(i + 1, *each) for i, each in enumerate(crossing)]
        deepest = max(self._ways.levels.values(), default=0)
        levels = [Level(0, False, (), ())]
        levels += [self._level(number, edges) for number in range(1, deepest + 1)]
        own = len(self._graph.nodes)
        return Physical(
            self._graph,
            self._schemas(),
            tuple(levels),
            self._regions(),
            self._direct(),
            {copy: node for copy, node in self._ways.nodes.items() if copy >= own},
            {id: self._digits(id) for id in self._ways.nodes if not self._is_sink(id)},
            {id: self._given(id) for id in self._ways.nodes if not self._is_source(id)},
            tuple(self._transform(id) for id in self._ways.inflows),
        )

    def _is_sink(self, consumer: int) -> bool:
        return isinstance(self._ways.nodes[consumer], SinkNode)

    def _is_source(self, producer: int) -> bool:
        return isinstance(self._ways.nodes[producer], SourceNode)

    def _schemas(self) -> dict[int, pa.Schema]:
        found = {node.id: self._typed.schema(node.id) for node in self._graph.nodes}
        for copy, node in self._ways.nodes.items():
            if copy not in found:
                origin = self._ways.paths[copy][0].producer if isinstance(node, Relay) else node.id
                found[copy] = found[origin]
        return found

    def _transform(self, id: int) -> Transform:
        paths = self._ways.inflows[id]
        before = self._ways.nodes[id]
        assert isinstance(before, TransformNode)
        ordered = self._typed.ordered(before.inputs[0])
        inputs = [self._inflow(id, place, way) for place, way in enumerate(paths)]
        given = self._given(id)
        return Transform(
            id,
            self._ways.levels[id] + 1,
            tuple(inputs),
            given if ordered else None,
            self._typed.ordered(id),
        )

    def _inflow(self, transform: int, place: int, way: RowPath) -> Edge:
        node = self._ways.nodes[transform]
        assert isinstance(node, TransformNode)
        return Edge(
            id=place,
            producer=way.producer,
            consumer=transform,
            chain=way.chain,
            region=None,
            distributes=False,
            columns=self._typed.schema(node.inputs[0]),
            keys=NO_COLUMNS,
            arguments=None,
            ordered=self._typed.ordered(node.inputs[0]),
            digits=self._digits(way.producer),
        )

    def _edge(self, number: int, consumer: int, place: int, way: RowPath) -> Edge:
        columns, arguments = self._columns(consumer, way), self._arguments(consumer)
        ordered = self._ordered(consumer)
        earlier = self._ways.paths[consumer][:place]
        return Edge(
            id=number,
            producer=way.producer,
            consumer=consumer,
            chain=way.chain,
            region=self._region_name(consumer),
            distributes=way.distribution is not None,
            columns=columns,
            keys=self._keys(consumer),
            arguments=arguments,
            ordered=ordered,
            digits=self._digits(way.producer) if ordered else 0,
            way=sum(other.producer == way.producer for other in earlier),
        )

    def _columns(self, consumer: int, way: RowPath) -> pa.Schema:
        """The value columns as the consumer gets them."""
        node = self._ways.nodes[consumer]
        if isinstance(node, Relay):
            return self._producer_schema(way.producer)
        if isinstance(node, AggregateNode):
            return pa.schema([(a.name, a.kind) for a in self._travelling(consumer)])
        return self._typed.schema(node.inputs[0])

    def _producer_schema(self, producer: int) -> pa.Schema:
        node = self._ways.nodes[producer]
        if isinstance(node, Relay):
            return self._producer_schema(self._ways.paths[producer][0].producer)
        return self._typed.schema(node.id)

    def _keys(self, consumer: int) -> pa.Schema:
        """The key columns that a consumer's rows bring along, or none."""
        node = self._ways.nodes[consumer]
        key: pa.Schema | None = None
        if isinstance(node, Relay):
            (after,) = self._ways.after(consumer)
            inside = [w for w in self._ways.ways_of(after) if w.producer == consumer]
            return NO_COLUMNS if inside[0].distribution is not None else self._keys(after)
        if isinstance(node, StatefulNode | MapBatchesNode):
            key = self._typed.key(node.id)
        return NO_COLUMNS if key is None else key

    def _arguments(self, consumer: int) -> tuple[tuple[str, str], ...] | None:
        if not isinstance(self._ways.nodes[consumer], AggregateNode):
            return None
        return tuple((a.name, a.sql) for a in self._travelling(consumer))

    def _travelling(self, consumer: int) -> list[Argument]:
        """What travels to an aggregate, one of its columns after the other."""
        node = self._graph.node(consumer)
        assert isinstance(node, AggregateNode)
        given = [a for c in aggregate_columns(self._typed, consumer) for a in c.arguments]
        ordering = [
            Argument(name, field.type, quote(field.name))
            for name, field in order_fields(self._typed, node)
        ]
        return given + ordering

    def _ordered(self, consumer: int) -> bool:
        """Whether this consumer, or anyone after it, needs to know the order of its rows."""
        known, node = self._needs_order.get(consumer), self._ways.nodes[consumer]
        if known is None and isinstance(node, StatefulNode) and node.order_by:
            # Those after it see the order that it makes; its own rows' breaks ties.
            known = self._typed.ordered(node.inputs[0])
            self._needs_order[consumer] = known
        elif known is None:
            known = self._sensitive(consumer) or any(
                self._ordered(after) for after in self._ways.after(consumer)
            )
            self._needs_order[consumer] = known
        return known

    def _sensitive(self, consumer: int) -> bool:
        node = self._ways.nodes[consumer]
        if isinstance(node, TransformNode):
            # The function may do with the order what it likes.
            return self._typed.ordered(node.inputs[0])
        if isinstance(node, AggregateNode):
            return any(depends_on_order(c) for c in aggregate_columns(self._typed, consumer))
        return isinstance(node, StatefulNode)

    def _digits(self, producer: int) -> int:
        node = self._ways.nodes[producer]
        if isinstance(node, SourceNode):
            return 0
        own = 0 if isinstance(node, AggregateNode | Relay) else 1
        given = self._given(producer)
        ordering = ordering_of(self._typed, node) if isinstance(node, StatefulNode) else None
        return own + (given if ordering is None else ordering.digits(given))

    def _given(self, consumer: int) -> int:
        """How many order digits the rows of all inputs have when they are put together."""
        return max(self._digits(way.producer) for way in self._ways.ways_of(consumer))

    def _region_name(self, consumer: int) -> str | None:
        """The region in which an operator runs: its own, or without state that of its rows."""
        node = self._ways.nodes[consumer]
        if isinstance(node, SourceNode | TransformNode):
            return None
        region = None
        if isinstance(node, StatefulNode):
            region = self._typed.region(node.id)
        else:
            way = self._ways.paths[consumer][0]
            if way.distribution is None:
                return self._region_name(way.producer)
            region = way.distribution
        assert region is not None
        distribution = self._graph.node(region)
        assert isinstance(distribution, DistributeNode)
        return distribution.name

    def _level(self, number: int, edges: list[Edge]) -> Level:
        inputs = tuple(e for e in edges if self._ways.levels[e.consumer] == number)
        members: dict[str | None, list[int]] = {}
        for consumer in self._ways.consumers():
            if self._ways.levels[consumer] == number:
                members.setdefault(self._region_name(consumer), []).append(consumer)
        groups = tuple(
            Group(region or UNKEYED, region, tuple(ids)) for region, ids in members.items()
        )
        # The user's code may spread rows over any number of partitions.
        moved = any(e.producer in self._ways.inflows for e in inputs)
        return Level(number, moved or any(e.distributes for e in inputs), inputs, groups)

    def _regions(self) -> tuple[Region, ...]:
        found: dict[str, list[str]] = {}
        keys: dict[str, pa.Schema] = {}
        for consumer in self._ways.consumers():
            name, node = self._region_name(consumer), self._ways.nodes[consumer]
            if name is None or not isinstance(node, StatefulNode | MapBatchesNode):
                continue
            names = found.setdefault(name, [])
            if isinstance(node, StatefulNode):
                names.append(node.name)
            if self._typed.key(node.id) is not None:
                keys.setdefault(name, self._typed.key(node.id))
        return tuple(Region(name, keys[name], tuple(ids)) for name, ids in found.items())

    def _direct(self) -> dict[int, tuple[int, ...]]:
        straight: dict[int, list[int]] = {}
        for consumer, paths in self._ways.paths.items():
            for way in paths:
                if not self._ways.leaves_task(consumer, way):
                    straight.setdefault(way.producer, []).append(consumer)
        return {producer: tuple(ids) for producer, ids in straight.items()}
