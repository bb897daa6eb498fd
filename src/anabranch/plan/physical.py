"""The physical form of a step: levels of Python tasks, with Catalyst chains and exchanges between.

Level 0 reads. Each later level runs one Python task per partition, with all operators of one
*group*: a region's operators at that depth, or the sinks of an unkeyed stream. Rows pass between
adjacent operators inside the task. Otherwise they take an *edge*: they leave Python for a chain of
``where``/``select``/``with_columns`` that Catalyst runs, with or without an exchange. All inputs of
a level share one exchange, or have none. A ``transform`` runs between two levels: it takes rows
from sources, tasks and other transforms, and produces rows for edges as a source does.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec
import pyarrow as pa

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.graph import Graph, GraphNode, StatefulNode
from anabranch.dataflow.joins import SIDE, JoinSide

NO_COLUMNS = pa.schema([])


class UnionBranch(msgspec.Struct, frozen=True):
    """One input of a union: gives its rows the union's columns."""

    kind: ClassVar[str] = "union"
    node: nodes.UnionNode
    place: int

    @property
    def id(self) -> int:
        """The id of the union."""
        return self.node.id

    def renamed(self, column: str) -> str:
        """The name in the union of a column of this input."""
        return JoinSide(self.place).prefix + column if self.node.sides else column

    @property
    def mark(self) -> tuple[str, str | int] | None:
        """The column that tells the inputs apart, with its value for this one; None for none."""
        if self.node.sides:
            return SIDE, self.place
        if self.node.tag is None:
            return None
        name, texts = self.node.tag
        return name, texts[self.place]


class SeenBy(Enum):
    """Who sees how far the event times of an input have come."""

    READER = "reader"
    """Python's read tasks: the times are those of the source's own rows."""
    PARTITION = "partition"
    """Spark, for each partition of the source."""
    SOURCE = "source"
    """Spark, for the source as a whole."""


class TimeAssignment(msgspec.Struct, frozen=True):
    """An ``assign_timestamps`` on the way of one source's rows, and the name of that input.

    ``told``: the times are not in a column; the source tells them beside its rows.
    """

    kind: ClassVar[str] = "assign_timestamps"
    node: nodes.TimestampsNode
    input: str
    source: str
    seen_by: SeenBy
    told: bool = False

    @property
    def id(self) -> int:
        """The id of the ``assign_timestamps``."""
        return self.node.id

    @property
    def needs_clock(self) -> bool:
        """Whether times depend on the clock of the step."""
        return self.node.column is None or self.node.ahead_us is not None


class UntimedRows(msgspec.Struct, frozen=True):
    """The rows of a source without a time, on their way to the dead letters."""

    kind: ClassVar[str] = "untimed"
    node: nodes.UntimedNode
    source: str

    @property
    def id(self) -> int:
        """The id of the node."""
        return self.node.id


class Relay(msgspec.Struct, frozen=True):
    """Passes rows to a deeper level, for a union whose inputs differ in depth."""

    id: int


ChainNode = (
    nodes.WhereNode
    | nodes.SplitNode
    | nodes.SelectNode
    | nodes.WithColumnsNode
    | nodes.KeyByNode
    | UnionBranch
    | TimeAssignment
    | UntimedRows
)
"""What Catalyst runs between two tasks."""

TaskNode = StatefulNode | nodes.MapBatchesNode | nodes.SinkNode
"""What a Python task runs."""


class Edge(msgspec.Struct, frozen=True):
    """The path of rows from one producer to one consumer.

    ``columns`` are the value columns on arrival. ``keys`` is empty if the consumer needs no key.
    ``arguments`` is a final projection (column name, SQL) for consumers that take values computed
    from the row; None for others. ``digits`` is the number of order digits that rows carry. ``way``
    numbers the edges between the same two operators. ``timed``: rows bring their event times along;
    ``fired``: some of them may be made by notifications.
    """

    id: int
    producer: int
    consumer: int
    chain: tuple[ChainNode, ...]
    columns: pa.Schema
    ordered: bool
    digits: int
    region: str | None = None
    distributes: bool = False
    keys: pa.Schema = NO_COLUMNS
    arguments: tuple[tuple[str, str], ...] | None = None
    way: int = 0
    timed: bool = False
    fired: bool = False

    @property
    def place(self) -> str:
        """The name under which its rows are counted."""
        further = f".{self.way}" if self.way else ""
        return f"edge {self.producer}-{self.consumer}{further}"

    @property
    def assignment(self) -> TimeAssignment | None:
        """Where its rows get the times that they bring along; None if they have them before."""
        found = (node for node in self.chain if isinstance(node, TimeAssignment))
        return next(found, None) if self.timed else None


class Group(msgspec.Struct, frozen=True):
    """The operators that one task runs: a region's operators on a level, or unkeyed sinks."""

    name: str
    region: str | None
    operators: tuple[int, ...]


class Level(msgspec.Struct, frozen=True):
    """One level of tasks; all ``inputs`` arrive through one exchange, or none does."""

    number: int
    exchange: bool
    inputs: tuple[Edge, ...]
    groups: tuple[Group, ...]


class Transform(msgspec.Struct, frozen=True):
    """The user's Spark code between two levels, run before level ``level``.

    It merges its ``inputs``, whose consumer it is. ``given`` is the number of order digits in the
    ``_ord`` that the function gets, None if it gets none. ``ordered``: the function returns
    ``_ord``, and its rows have one digit more. ``timed``: it returns ``_time``.
    """

    id: int
    level: int
    inputs: tuple[Edge, ...]
    given: int | None
    ordered: bool
    timed: bool = False

    @property
    def fired(self) -> bool:
        """Whether notifications may have made some of its rows."""
        return self.timed and any(edge.fired for edge in self.inputs)


class Region(msgspec.Struct, frozen=True):
    """A keyed part of the pipeline: its name, its key and the names of its stateful operators."""

    name: str
    keys: pa.Schema
    operators: tuple[str, ...]


class Physical(msgspec.Struct, frozen=True):
    """The whole pipeline, lowered. Built once, for all steps.

    Operators have the ids of their nodes. A stateless operator after a union runs once per input,
    where that input's rows are; ``copies`` maps the further ids to their nodes. ``digits`` is the
    number of order digits of an operator's output, ``given`` that of its input.
    """

    graph: Graph
    schemas: dict[int, pa.Schema]
    levels: tuple[Level, ...]
    regions: tuple[Region, ...]
    direct: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    copies: dict[int, GraphNode | Relay] = msgspec.field(default_factory=dict)
    digits: dict[int, int] = msgspec.field(default_factory=dict)
    given: dict[int, int] = msgspec.field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()

    @property
    def first_exchange(self) -> int | None:
        """The first level behind an exchange, where control rows enter."""
        return next((level.number for level in self.levels if level.exchange), None)

    def sources(self) -> tuple[nodes.SourceNode, ...]:
        """The sources, in graph order. A source's place here is its number in the row order."""
        return self.graph.sources()

    def region(self, name: str) -> Region:
        """The region of that name."""
        return next(region for region in self.regions if region.name == name)

    def assignments(self) -> tuple[TimeAssignment, ...]:
        """Where rows get event times that somebody uses."""
        edges = [edge for level in self.levels for edge in level.inputs]
        edges += [edge for transform in self.transforms for edge in transform.inputs]
        found = [edge.assignment for edge in edges if edge.assignment is not None]
        return tuple(dict.fromkeys(found))

    def leaving(self, level: int) -> tuple[Edge, ...]:
        """The edges from this level to the next; none for the last level."""
        following = level + 1
        return self.levels[following].inputs if following < len(self.levels) else ()

    def transforms_before(self, level: int) -> tuple[Transform, ...]:
        """The transforms right before this level, producers before consumers."""
        return tuple(transform for transform in self.transforms if transform.level == level)

    def transform(self, node_id: int) -> Transform:
        """The transform of that id."""
        return next(transform for transform in self.transforms if transform.id == node_id)

    def emitting(self, level: int) -> set[int]:
        """The operators of this level whose rows leave Python."""
        transforms = self.transforms_before(level + 1)
        edges = (*self.leaving(level), *(e for t in transforms for e in t.inputs))
        return {edge.producer for edge in edges}

    def is_read(self, node_id: int) -> bool:
        """Whether this id is a source."""
        return isinstance(self.node(node_id), nodes.SourceNode)

    def is_transform(self, node_id: int) -> bool:
        """Whether this id is a transform."""
        return isinstance(self.node(node_id), nodes.TransformNode)

    def node(self, node_id: int) -> GraphNode | Relay:
        """The node that runs under this id."""
        copied = self.copies.get(node_id)
        return self.graph.node(node_id) if copied is None else copied
