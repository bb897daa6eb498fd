"""Lowering of a typed dataflow to the levels of a step."""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    LateNode,
    MapBatchesNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    TransformNode,
)
from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.aggregate import (
    Argument,
    aggregate_columns,
    depends_on_order,
    late_arguments,
)
from anabranch.operators.order.order_by import order_fields, ordering_of
from anabranch.plan.paths import RowPath, RowPaths
from anabranch.plan.physical import (
    NO_COLUMNS,
    Edge,
    Group,
    Level,
    Physical,
    Region,
    Relay,
    Transform,
)
from anabranch.plan.timed_paths import TimedPaths

UNKEYED = "-unkeyed"
"""The group of operators without a region; it is not a valid region name."""


def lower(typed: Typed) -> Physical:
    """Lower a valid dataflow to its physical form."""
    return _Lowering(typed).physical()


class _Lowering:
    def __init__(self, typed: Typed) -> None:
        self._typed = typed
        self._graph = typed.graph
        self._row_paths = RowPaths(typed.graph, lambda node: typed.region(node) is not None)
        self._times = TimedPaths(typed, self._row_paths)
        self._needs_order: dict[int, bool] = {}

    def physical(self) -> Physical:
        """Assemble the levels."""
        crossing = [
            (consumer, number, path)
            for consumer, paths in self._row_paths.paths.items()
            for number, path in enumerate(paths)
            if self._row_paths.leaves_task(consumer, path)
        ]
        edges = [self._edge(i + 1, *each) for i, each in enumerate(crossing)]
        deepest = max(self._row_paths.levels.values(), default=0)
        levels = [Level(0, False, (), ())]
        levels += [self._level(number, edges) for number in range(1, deepest + 1)]
        nodes = self._row_paths.nodes.items()
        return Physical(
            self._graph,
            self._schemas(),
            tuple(levels),
            self._regions(),
            self._direct_consumers(),
            {copy: node for copy, node in nodes if copy >= len(self._graph.nodes)},
            {id: self._output_digits(id) for id, n in nodes if not isinstance(n, SinkNode)},
            {
                id: self._input_digits(id)
                for id, n in nodes
                if not isinstance(n, SourceNode | LateNode)
            },
            tuple(self._transform(id) for id in self._row_paths.inflows),
        )

    def _schemas(self) -> dict[int, pa.Schema]:
        found = {node.id: self._typed.schema(node.id) for node in self._graph.nodes}
        for copy, node in self._row_paths.nodes.items():
            if copy not in found:
                origin = (
                    self._row_paths.paths[copy][0].producer if isinstance(node, Relay) else node.id
                )
                found[copy] = found[origin]
        return found

    def _transform(self, id: int) -> Transform:
        node = self._row_paths.nodes[id]
        assert isinstance(node, TransformNode)
        paths = enumerate(self._row_paths.inflows[id])
        return Transform(
            id,
            self._row_paths.levels[id] + 1,
            tuple(self._inflow(node, place, path) for place, path in paths),
            self._input_digits(id) if self._typed.ordered(node.inputs[0]) else None,
            self._typed.ordered(id),
            self._typed.timed(id),
        )

    def _inflow(self, transform: TransformNode, place: int, path: RowPath) -> Edge:
        timed = self._times.timed(transform.id)
        return Edge(
            id=place,
            producer=path.producer,
            consumer=transform.id,
            chain=self._times.chain(path),
            columns=self._typed.schema(transform.inputs[0]),
            ordered=self._typed.ordered(transform.inputs[0]),
            digits=self._output_digits(path.producer),
            timed=timed,
            fired=timed and self._times.fired(path.producer),
        )

    def _edge(self, number: int, consumer: int, place: int, path: RowPath) -> Edge:
        ordered = self._ordered(consumer)
        earlier = self._row_paths.paths[consumer][:place]
        timed = self._times.timed(consumer)
        return Edge(
            id=number,
            producer=path.producer,
            consumer=consumer,
            chain=self._times.chain(path),
            region=self._region_name(consumer),
            distributes=path.distribution is not None,
            columns=self._columns(consumer, path),
            keys=self._keys(consumer),
            arguments=self._arguments(consumer),
            ordered=ordered,
            digits=self._output_digits(path.producer) if ordered else 0,
            way=sum(other.producer == path.producer for other in earlier),
            timed=timed,
            fired=timed and self._times.fired(path.producer),
        )

    def _columns(self, consumer: int, path: RowPath) -> pa.Schema:
        """The value columns that the consumer gets."""
        node = self._row_paths.nodes[consumer]
        if isinstance(node, Relay):
            return self._producer_schema(path.producer)
        if isinstance(node, AggregateNode):
            return pa.schema([(a.name, a.kind) for a in self._carried_arguments(consumer)])
        return self._typed.schema(node.inputs[0])

    def _producer_schema(self, producer: int) -> pa.Schema:
        node = self._row_paths.nodes[producer]
        if isinstance(node, Relay):
            return self._producer_schema(self._row_paths.paths[producer][0].producer)
        return self._typed.schema(node.id)

    def _keys(self, consumer: int) -> pa.Schema:
        """The key columns that a consumer's rows carry, if any."""
        node = self._row_paths.nodes[consumer]
        key: pa.Schema | None = None
        if isinstance(node, Relay):
            (after,) = self._row_paths.after(consumer)
            inside = [w for w in self._row_paths.paths_to(after) if w.producer == consumer]
            return NO_COLUMNS if inside[0].distribution is not None else self._keys(after)
        if isinstance(node, StatefulNode | MapBatchesNode):
            key = self._typed.key(node.id)
        return NO_COLUMNS if key is None else key

    def _arguments(self, consumer: int) -> tuple[tuple[str, str], ...] | None:
        if not isinstance(self._row_paths.nodes[consumer], AggregateNode):
            return None
        return tuple((a.name, a.sql) for a in self._carried_arguments(consumer))

    def _carried_arguments(self, consumer: int) -> list[Argument]:
        """The columns that rows carry to an aggregate, aggregate by aggregate."""
        node = self._graph.node(consumer)
        assert isinstance(node, AggregateNode)
        given = [a for c in aggregate_columns(self._typed, consumer) for a in c.arguments]
        ordering = [
            Argument(name, field.type, quote(field.name))
            for name, field in order_fields(self._typed, node)
        ]
        late: list[Argument] = []
        if self._graph.late_of(consumer):
            late = late_arguments(self._typed.schema(node.inputs[0]))
        return given + ordering + late

    def _ordered(self, consumer: int) -> bool:
        """Whether this consumer, or any after it, needs the order of its rows."""
        if consumer not in self._needs_order:
            node = self._row_paths.nodes[consumer]
            if isinstance(node, StatefulNode) and node.order_by:
                # Consumers after it see its own order; the order of its input breaks ties.
                needed = self._typed.ordered(node.inputs[0])
            else:
                after = self._row_paths.after(consumer)
                needed = self._uses_order(consumer) or any(map(self._ordered, after))
                needed = needed or self._times.told_apart(consumer)
            self._needs_order[consumer] = needed
        return self._needs_order[consumer]

    def _uses_order(self, consumer: int) -> bool:
        node = self._row_paths.nodes[consumer]
        if isinstance(node, TransformNode):
            # The function may use the order.
            return self._typed.ordered(node.inputs[0])
        if isinstance(node, AggregateNode):
            return any(depends_on_order(c) for c in aggregate_columns(self._typed, consumer))
        return isinstance(node, StatefulNode)

    def _output_digits(self, producer: int) -> int:
        node = self._row_paths.nodes[producer]
        if isinstance(node, SourceNode):
            return 0
        if isinstance(node, LateNode):
            return self._input_digits(node.inputs[0])
        plain = isinstance(node, AggregateNode) and node.window is None
        own = 0 if plain or isinstance(node, Relay) else 1
        given = self._input_digits(producer)
        ordering = ordering_of(self._typed, node) if isinstance(node, StatefulNode) else None
        return own + (given if ordering is None else ordering.digits(given))

    def _input_digits(self, consumer: int) -> int:
        """The number of order digits of a consumer's merged inputs."""
        return max(
            self._output_digits(path.producer) for path in self._row_paths.paths_to(consumer)
        )

    def _region_name(self, consumer: int) -> str | None:
        """The region in which an operator runs: its own, or if stateless, that of its rows."""
        node = self._row_paths.nodes[consumer]
        if isinstance(node, SourceNode | TransformNode):
            return None
        if isinstance(node, LateNode):
            return self._region_name(node.inputs[0])
        if isinstance(node, StatefulNode):
            region = self._typed.region(node.id)
        else:
            path = self._row_paths.paths[consumer][0]
            if path.distribution is None:
                return self._region_name(path.producer)
            region = path.distribution
        assert region is not None
        distribution = self._graph.node(region)
        assert isinstance(distribution, DistributeNode)
        return distribution.name

    def _level(self, number: int, edges: list[Edge]) -> Level:
        inputs = tuple(e for e in edges if self._row_paths.levels[e.consumer] == number)
        members: dict[str | None, list[int]] = {}
        for consumer in self._row_paths.paths:
            if self._row_paths.levels[consumer] == number:
                members.setdefault(self._region_name(consumer), []).append(consumer)
        groups = tuple(
            Group(region or UNKEYED, region, tuple(ids)) for region, ids in members.items()
        )
        # A transform may spread rows over any number of partitions.
        moved = any(e.producer in self._row_paths.inflows for e in inputs)
        return Level(number, moved or any(e.distributes for e in inputs), inputs, groups)

    def _regions(self) -> tuple[Region, ...]:
        found: dict[str, list[str]] = {}
        keys: dict[str, pa.Schema] = {}
        for consumer in self._row_paths.paths:
            name, node = self._region_name(consumer), self._row_paths.nodes[consumer]
            if name is None or not isinstance(node, StatefulNode | MapBatchesNode):
                continue
            names = found.setdefault(name, [])
            if isinstance(node, StatefulNode):
                names.append(node.name)
            if self._typed.key(node.id) is not None:
                keys.setdefault(name, self._typed.key(node.id))
        return tuple(Region(name, keys[name], tuple(ids)) for name, ids in found.items())

    def _direct_consumers(self) -> dict[int, tuple[int, ...]]:
        straight: dict[int, list[int]] = {}
        for consumer, paths in self._row_paths.paths.items():
            for path in paths:
                if not self._row_paths.leaves_task(consumer, path):
                    straight.setdefault(path.producer, []).append(consumer)
        return {producer: tuple(ids) for producer, ids in straight.items()}
