"""Row paths: from each operator that runs in a task back to the producers of its rows.

Behind a union an operator has several paths. A stateful operator merges all of them, because rows
meet at their key. A stateless one runs once per path, where the rows are, so a union by itself does
not move rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    Graph,
    GraphNode,
    KeyByNode,
    LateNode,
    LocalNode,
    MapBatchesNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TimestampsNode,
    TransformNode,
    UnionNode,
    UntimedNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.plan.physical import Relay, TaskNode, UnionBranch

PathNode = (
    WhereNode
    | SplitNode
    | SelectNode
    | WithColumnsNode
    | TimestampsNode
    | UntimedNode
    | KeyByNode
    | UnionBranch
)
"""What is on the way between two tasks."""


class RowPath(msgspec.Struct, frozen=True):
    """The path from a producer to a consumer: its Catalyst chain and its distribution, if any."""

    producer: int
    chain: tuple[PathNode, ...] = ()
    distribution: int | None = None


@dataclass(slots=True)
class RowPaths:
    """The paths, level and node of everything that runs in tasks, in execution order.

    Ids are node ids; further copies of a node, and relays, get ids of their own. ``in_region``
    says whether a node's rows are in a region. ``inflows`` are the paths to transforms, which run
    after the tasks of their level and before those of the next.
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
                self._add_stateful(node)
            elif isinstance(node, TransformNode):
                self._add_transform(node)
            elif isinstance(node, LateNode):
                self._add_late(node)
            elif isinstance(node, MapBatchesNode | SinkNode) and node.inputs:
                self._add_stateless(node)

    def after(self, producer: int) -> list[int]:
        """The consumers of a producer's rows, also of those that came too late for it."""
        every = {**self.paths, **self.inflows}
        own = {producer}
        if producer < len(self.graph.nodes):
            own |= {late.id for late in self.graph.late_of(producer)}
        return [c for c, paths in every.items() if any(w.producer in own for w in paths)]

    def paths_to(self, id: int) -> tuple[RowPath, ...]:
        """The paths to a consumer or a transform."""
        return self.inflows[id] if id in self.inflows else self.paths[id]

    def leaves_task(self, consumer: int, path: RowPath) -> bool:
        """Whether rows leave Python on this path."""
        return self.levels[consumer] > self.levels[path.producer] or self._made_outside(path)

    def _add_stateful(self, node: StatefulNode) -> None:
        found = tuple(self._walk(node.inputs[0], RowPath(-1), keyed=False, distributed=True))
        level = max(self._level_after(node, path) for path in found)
        self.paths[node.id] = tuple(self._with_relays(path, level) for path in found)
        self.nodes[node.id] = node
        self.levels[node.id] = level
        self._copies[node.id] = [node.id]
        # Relays were added in between, and must come before this node.
        self.paths[node.id] = self.paths.pop(node.id)

    def _add_transform(self, node: TransformNode) -> None:
        """Add a transform, which merges the rows of all its paths."""
        found = tuple(self._walk(node.inputs[0], RowPath(-1), keyed=True, distributed=False))
        level = max(self.levels[path.producer] for path in found)
        self.inflows[node.id] = tuple(self._with_relays(path, level + 1) for path in found)
        self.nodes[node.id] = node
        self.levels[node.id] = level
        self._copies[node.id] = [node.id]

    def _add_late(self, node: LateNode) -> None:
        """Add the late rows of an operator, which its task emits beside its output."""
        self.nodes[node.id] = node
        self.levels[node.id] = self.levels[node.inputs[0]]
        self._copies[node.id] = [node.id]

    def _add_stateless(self, node: MapBatchesNode | SinkNode) -> None:
        self._copies[node.id] = []
        # Sinks run where the rows are, and so do functions outside a region.
        distributed = isinstance(node, MapBatchesNode) and self.in_region(node.id)
        for path in self._walk(node.inputs[0], RowPath(-1), keyed=False, distributed=distributed):
            copy = node.id if not self._copies[node.id] else self._new_id()
            self.nodes[copy] = node
            self.paths[copy] = (path,)
            self.levels[copy] = self._level_after(node, path)
            self._copies[node.id].append(copy)

    def _new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def _walk(
        self, start: int, path: RowPath, *, keyed: bool, distributed: bool
    ) -> Iterator[RowPath]:
        """Walk up to the next operators that run in Python, or to sources.

        Of several keys on the path, only that of the last distribution counts.
        """
        node = self.graph.node(start)
        match node:
            case UnionNode():
                for place, each in enumerate(node.inputs):
                    longer = replace(path, chain=(UnionBranch(node, place), *path.chain))
                    yield from self._walk(each, longer, keyed=keyed, distributed=distributed)
                return
            case DistributeNode():
                if distributed and path.distribution is None:
                    path = replace(path, distribution=node.id)
            case LocalNode():
                pass
            case (
                WhereNode()
                | SplitNode()
                | SelectNode()
                | WithColumnsNode()
                | TimestampsNode()
                | UntimedNode()
            ):
                path = replace(path, chain=(node, *path.chain))
            case KeyByNode():
                if path.distribution is not None and not keyed:
                    keyed = True
                    path = replace(path, chain=(node, *path.chain))
            case SinkNode():
                raise AssertionError("a sink has no consumers")
            case _:
                yield from (replace(path, producer=copy) for copy in self._copies[node.id])
                return
        yield from self._walk(node.inputs[0], path, keyed=keyed, distributed=distributed)

    def _made_outside(self, path: RowPath) -> bool:
        """Whether the rows come from outside Python tasks."""
        return isinstance(self.nodes[path.producer], SourceNode | TransformNode)

    def _level_after(self, consumer: TaskNode, path: RowPath) -> int:
        """The level of a consumer with only this path."""
        crosses = (
            self._made_outside(path)
            or bool(path.chain)
            or path.distribution is not None
            or isinstance(consumer, AggregateNode)
        )
        return self.levels[path.producer] + (1 if crosses else 0)

    def _with_relays(self, path: RowPath, level: int) -> RowPath:
        """The path with a relay on each level that it would skip.

        Sources need none: they are read where their rows are needed.
        """
        if isinstance(self.nodes[path.producer], SourceNode):
            return path
        for number in range(self.levels[path.producer] + 1, level):
            relay = self._new_id()
            self.nodes[relay] = Relay(relay)
            self.paths[relay] = (RowPath(path.producer),)
            self.levels[relay] = number
            path = replace(path, producer=relay)
        return path
