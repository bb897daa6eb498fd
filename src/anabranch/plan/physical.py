"""What a step consists of: levels of Python tasks with Catalyst chains and exchanges between.

Level 0 reads. Every later level is one Python task per partition, which runs all operators of one
*group* (a region's operators at that depth, or the sinks of an unkeyed stream). Rows get from an
operator to the next by an *edge*: straight inside the task where nothing lies between them, or by
leaving Python for a chain of ``where``/``select``/``with_columns`` that Catalyst runs, with or
without an exchange. A level is fed by one exchange or by none: all its inputs share it. A
``transform`` stands between two levels: it produces rows for edges as a source does, out of rows
that come from sources, from tasks and from other transforms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from anabranch.dataflow.graph import (
    Graph,
    GraphNode,
    KeyByNode,
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


@dataclass(frozen=True, slots=True)
class UnionBranch:
    """One input of a union: its rows get the union's columns."""

    kind: ClassVar[str] = "union"
    node: UnionNode
    place: int

    @property
    def id(self) -> int:
        """The union's."""
        return self.node.id


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes rows on to a deeper level: of a union, of which one input takes longer."""

    id: int


ChainNode = WhereNode | SplitNode | SelectNode | WithColumnsNode | KeyByNode | UnionBranch
"""What Catalyst runs between two tasks."""

TaskNode = StatefulNode | MapBatchesNode | SinkNode
"""What a Python task runs."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The way of rows from one producer to one consumer.

    ``columns`` are the value columns as they arrive. ``keys`` is empty where the consumer needs no
    key. ``arguments`` is a last projection (column name, SQL) for a consumer that wants values
    computed from the row instead of the row; None elsewhere. ``digits`` counts the order digits
    that rows carry.
    """

    id: int
    producer: int
    consumer: int
    chain: tuple[ChainNode, ...]
    region: str | None
    distributes: bool
    columns: pa.Schema
    keys: pa.Schema
    arguments: tuple[tuple[str, str], ...] | None
    ordered: bool
    digits: int
    way: int = 0

    @property
    def place(self) -> str:
        """What counts of its rows are named after; ``way`` tells edges between the same two."""
        further = f".{self.way}" if self.way else ""
        return f"edge {self.producer}-{self.consumer}{further}"


@dataclass(frozen=True, slots=True)
class Group:
    """The operators that one task runs: a region's share of a level, or unkeyed sinks."""

    name: str
    region: str | None
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One depth of the pipeline: ``inputs`` arrive here, by one exchange or straight."""

    number: int
    exchange: bool
    inputs: tuple[Edge, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Transform:
    """The user's Spark code between two levels: it is run before level ``level``.

    ``inputs`` bring it its rows, united; their consumer is the transform. ``given`` counts the
    order digits in the ``_ord`` that the function gets, None where it gets none. ``ordered`` says
    whether the function returns it; then rows have one digit more.
    """

    id: int
    level: int
    inputs: tuple[Edge, ...]
    given: int | None
    ordered: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A keyed share of the pipeline: its name, its key and its stateful operators, by name."""

    name: str
    keys: pa.Schema
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Physical:
    """The whole pipeline, lowered. Built once; the same for every step.

    Operators go by the ids of their nodes. A stateless operator after a union runs once for each
    input, where that input's rows are: ``copies`` says whose copies the further ids are.
    ``digits`` counts the order digits of what an operator gives, ``given`` those of what it gets.
    """

    graph: Graph
    schemas: dict[int, pa.Schema]
    levels: tuple[Level, ...]
    regions: tuple[Region, ...]
    direct: dict[int, tuple[int, ...]] = field(default_factory=dict)
    copies: dict[int, GraphNode | Relay] = field(default_factory=dict)
    digits: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()

    @property
    def first_exchange(self) -> int | None:
        """The first level behind an exchange: where the control rows come in."""
        return next((level.number for level in self.levels if level.exchange), None)

    def sources(self) -> tuple[SourceNode, ...]:
        """The sources, in the order of the graph. A source's place here is its number in order."""
        return tuple(node for node in self.graph.nodes if isinstance(node, SourceNode))

    def sinks(self) -> tuple[SinkNode, ...]:
        """The sinks, in the order of the graph."""
        return tuple(node for node in self.graph.nodes if isinstance(node, SinkNode))

    def region(self, name: str) -> Region:
        """The region of that name."""
        return next(region for region in self.regions if region.name == name)

    def leaving(self, level: int) -> tuple[Edge, ...]:
        """The edges from this level to the next: empty for the last one."""
        following = level + 1
        return self.levels[following].inputs if following < len(self.levels) else ()

    def transforms_before(self, level: int) -> tuple[Transform, ...]:
        """The transforms between this level and the one before, producers before consumers."""
        return tuple(transform for transform in self.transforms if transform.level == level)

    def transform(self, node_id: int) -> Transform:
        """The transform of that id."""
        return next(transform for transform in self.transforms if transform.id == node_id)

    def emitting(self, level: int) -> set[int]:
        """The operators of this level whose rows leave Python: for the next level's edges."""
        transforms = self.transforms_before(level + 1)
        edges = (*self.leaving(level), *(e for t in transforms for e in t.inputs))
        return {edge.producer for edge in edges}

    def is_read(self, node_id: int) -> bool:
        """Whether its rows come from a source, not from a task or a transform."""
        return isinstance(self.node(node_id), SourceNode)

    def is_transform(self, node_id: int) -> bool:
        """Whether its rows come from a transform."""
        return isinstance(self.node(node_id), TransformNode)

    def node(self, node_id: int) -> GraphNode | Relay:
        """What runs under that id."""
        copied = self.copies.get(node_id)
        return self.graph.node(node_id) if copied is None else copied
