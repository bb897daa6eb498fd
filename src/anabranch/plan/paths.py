"""The ways of rows: from every operator that runs in a task back to those whose rows it gets.

A union has several inputs, so an operator behind it has several ways. One that keeps state has all
of them at once: its rows come together at their key. Any other runs once per way, each time where
the rows are; so a union moves nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    Graph,
    GraphNode,
    KeyByNode,
    LocalNode,
    MapBatchesNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.plan.physical import ChainNode, Relay, TaskNode, UnionBranch


@dataclass(frozen=True, slots=True)
class RowPath:
    """A consumer's way back to a producer: what Catalyst does on it, and where it distributes."""

    producer: int
    chain: tuple[ChainNode, ...] = ()
    distribution: int | None = None


@dataclass(slots=True)
class RowPaths:
    """Everything that runs in tasks: its ways, its level and its node, in the order of running.

    The ids are those of the nodes; further copies of a node, and relays, have ids of their own.
    ``in_region`` says whether the rows of a node are in a region. ``inflows`` are the ways to
    transforms, which run behind the tasks of their level and before those of the next.
    """

    graph: Graph
    in_region: Callable[[int], bool]
    nodes: dict[int, GraphNode | Relay] = field(default_factory=dict)
    paths: dict[int, tuple[RowPath, ...]] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)
    inflows: dict[int, tuple[RowPath, ...]] = field(default_factory=dict)
    _copies: dict[int, list[int]] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        """Walk the graph once, from left to right."""
        self._next = len(self.graph.nodes)
        for node in self.graph.nodes:
            if isinstance(node, SourceNode):
                self.nodes[node.id] = node
                self.levels[node.id] = 0
                self._copies[node.id] = [node.id]
            elif isinstance(node, StatefulNode):
                self._stateful(node)
            elif isinstance(node, TransformNode):
                self._transform(node)
            elif isinstance(node, MapBatchesNode | SinkNode) and node.inputs:
                self._stateless(node)

    def consumers(self) -> list[int]:
        """All that run in tasks, producers before their consumers."""
        return list(self.paths)

    def after(self, producer: int) -> list[int]:
        """Who gets the rows of a producer."""
        every = {**self.paths, **self.inflows}
        return [c for c, paths in every.items() if any(w.producer == producer for w in paths)]

    def ways_of(self, id: int) -> tuple[RowPath, ...]:
        """The ways of rows to what runs in a task, or to a transform."""
        return self.inflows[id] if id in self.inflows else self.paths[id]

    def leaves_task(self, consumer: int, way: RowPath) -> bool:
        """Whether rows leave Python on this way."""
        return self.levels[consumer] > self.levels[way.producer] or self._made_outside(way)

    def _stateful(self, node: StatefulNode) -> None:
        found = tuple(self._walk(node.inputs[0], RowPath(-1), keyed=False, distributed=True))
        level = max(self._level_after(node, way) for way in found)
        self.paths[node.id] = tuple(self._relayed(way, level) for way in found)
        self.nodes[node.id] = node
        self.levels[node.id] = level
        self._copies[node.id] = [node.id]
        # The relays were made after the walk had begun: what runs first must stand first.
        self.paths[node.id] = self.paths.pop(node.id)

    def _transform(self, node: TransformNode) -> None:
        """A transform gets the rows of all its ways at once, wherever they were before."""
        found = tuple(self._walk(node.inputs[0], RowPath(-1), keyed=True, distributed=False))
        level = max(self.levels[way.producer] for way in found)
        self.inflows[node.id] = tuple(self._relayed(way, level + 1) for way in found)
        self.nodes[node.id] = node
        self.levels[node.id] = level
        self._copies[node.id] = [node.id]

    def _stateless(self, node: MapBatchesNode | SinkNode) -> None:
        self._copies[node.id] = []
        # A sink takes rows wherever they are; so does a function, outside a region.
        distributed = isinstance(node, MapBatchesNode) and self.in_region(node.id)
        for way in self._walk(node.inputs[0], RowPath(-1), keyed=False, distributed=distributed):
            copy = node.id if not self._copies[node.id] else self._new_id()
            self.nodes[copy] = node
            self.paths[copy] = (way,)
            self.levels[copy] = self._level_after(node, way)
            self._copies[node.id].append(copy)

    def _new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def _walk(
        self, start: int, way: RowPath, *, keyed: bool, distributed: bool
    ) -> Iterator[RowPath]:
        """Walk up to the next operators that run in Python, or to sources.

        Of several keys on the way only the one counts that the last distribution uses.
        """
        node = self.graph.node(start)
        match node:
            case SourceNode() | AggregateNode() | MapBatchesNode() | TransformNode():
                yield from (replace(way, producer=copy) for copy in self._copies[node.id])
                return
            case UnionNode():
                for place, each in enumerate(node.inputs):
                    longer = replace(way, chain=(UnionBranch(node, place), *way.chain))
                    yield from self._walk(each, longer, keyed=keyed, distributed=distributed)
                return
            case DistributeNode():
                if distributed and way.distribution is None:
                    way = replace(way, distribution=node.id)
            case LocalNode():
                pass
            case WhereNode() | SplitNode() | SelectNode() | WithColumnsNode():
                way = replace(way, chain=(node, *way.chain))
            case KeyByNode():
                if way.distribution is not None and not keyed:
                    keyed = True
                    way = replace(way, chain=(node, *way.chain))
            case SinkNode():
                raise AssertionError("a sink has no consumers")
            case _:
                yield from (replace(way, producer=copy) for copy in self._copies[node.id])
                return
        yield from self._walk(node.inputs[0], way, keyed=keyed, distributed=distributed)

    def _reads(self, way: RowPath) -> bool:
        return isinstance(self.nodes[way.producer], SourceNode)

    def _made_outside(self, way: RowPath) -> bool:
        """Whether the rows come from outside of Python tasks."""
        return isinstance(self.nodes[way.producer], SourceNode | TransformNode)

    def _level_after(self, consumer: TaskNode, way: RowPath) -> int:
        """The level of a consumer that has this way alone."""
        crosses = (
            self._made_outside(way)
            or bool(way.chain)
            or way.distribution is not None
            or isinstance(consumer, AggregateNode)
        )
        return self.levels[way.producer] + (1 if crosses else 0)

    def _relayed(self, way: RowPath, level: int) -> RowPath:
        """The way with a relay on each level that it would skip.

        Sources need none: they are read where their rows are wanted.
        """
        if self._reads(way):
            return way
        for number in range(self.levels[way.producer] + 1, level):
            relay = self._new_id()
            self.nodes[relay] = Relay(relay)
            self.paths[relay] = (RowPath(way.producer),)
            self.levels[relay] = number
            way = replace(way, producer=relay)
        return way
