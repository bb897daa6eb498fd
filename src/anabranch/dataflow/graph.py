"""The dataflow as data: one frozen node per operator, in the order the user wrote them.

A node's ``id`` is its place in ``Graph.nodes``. Its inputs come before it, so one pass from left to
right sees every producer before its consumers. Nodes hold only what the user wrote; the types, keys
and regions derived from it are in ``Typed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from anabranch.dataflow.dead_letters import OnError
from anabranch.dataflow.durations import Clock
from anabranch.dataflow.functions import DriverFunction
from anabranch.dataflow.handles import Process
from anabranch.dataflow.joins import JoinKind, LeftJoinKind
from anabranch.dataflow.order_by import OrderColumn
from anabranch.dataflow.windows import Window

if TYPE_CHECKING:
    from anabranch.protocol.sinks import Sink
    from anabranch.protocol.sources import Source

_LONGEST_LABEL = 40

#: The user's function of a ``stateful_map``: (key, row, state) → (output, new state).
StatefulFunction: TypeAlias = Callable[[Any, Any, Any], Any]
#: The user's function of a ``stateful_batches``: rows and state in, output and new state out.
StatefulBatchFunction: TypeAlias = Callable[[Any, Any], Any]
#: The user's function of a ``map_batches``: an Arrow table in, an Arrow table out.
BatchFunction: TypeAlias = Callable[[Any], Any]


class _Node(msgspec.Struct, frozen=True):
    kind: ClassVar[str]
    id: int
    inputs: tuple[int, ...]

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it."""
        return False


class SourceNode(_Node, frozen=True):
    """A source of rows. It has no input."""

    kind = "source"
    name: str
    source: Source


class WhereNode(_Node, frozen=True):
    """Keeps the rows for which a SQL condition is true."""

    kind = "where"
    condition: str


class SplitNode(_Node, frozen=True):
    """One output of a split: the rows for which its condition is the first true one.

    ``conditions`` are those of the earlier outputs, then its own.
    """

    kind = "split"
    output: str
    conditions: tuple[str, ...]


class UnionNode(_Node, frozen=True):
    """Merges several streams. Columns are matched by name.

    ``tag`` is a column that names the input of each row, and the text for each input; with it,
    columns that an input lacks are NULL in its rows. None: all inputs have the same columns.

    With ``sides``, it has the two sides of the join that follows it: the column ``SIDE``, then the
    columns of each side with the side's prefix, and the key under the names of the left one.
    """

    kind = "union"
    tag: tuple[str, tuple[str, ...]] | None
    sides: bool = False


class MapBatchesNode(_Node, frozen=True):
    """Calls the user's function with Arrow tables of rows; ``output`` is a schema text."""

    kind = "map_batches"
    name: str
    function: BatchFunction
    output: str
    on_error: OnError = "fail"


class TransformNode(_Node, frozen=True):
    """Calls the user's Spark code with a step's rows as a DataFrame; Catalyst plans the result."""

    kind = "transform"
    name: str
    function: DriverFunction


class SelectNode(_Node, frozen=True):
    """Replaces the columns by SQL expressions."""

    kind = "select"
    expressions: tuple[str, ...]


class WithColumnsNode(_Node, frozen=True):
    """Adds or replaces columns: (name, SQL expression) over the input's columns."""

    kind = "with_columns"
    columns: tuple[tuple[str, str], ...]


class TimestampsNode(_Node, frozen=True):
    """Gives rows their event times: those in a column, or, with None, the step's clock.

    Durations are in microseconds. ``lateness_us`` is how far rows may be behind the latest one of
    their partition. ``idle_us`` is after how long without rows a partition holds nothing back, and
    ``ahead_us`` how far rows may be ahead of the step's clock; None is never, and any distance.
    ``on_error`` is what happens to rows without a time.
    """

    kind = "assign_timestamps"
    column: str | None
    lateness_us: int = 0
    idle_us: int | None = None
    ahead_us: int | None = None
    on_error: OnError = "fail"


class UntimedNode(_Node, frozen=True):
    """The rows without a time in a column, as dead letters."""

    kind = "untimed"
    column: str


class KeyByNode(_Node, frozen=True):
    """Computes a key beside the row: (name, SQL expression). Does not move rows.

    The name is empty if the user gave none; validation reports it.
    """

    kind = "key_by"
    keys: tuple[tuple[str, str], ...]


class DistributeNode(_Node, frozen=True):
    """Sends rows to the owners of their keys. Opens a region of the same name."""

    kind = "distribution"
    name: str


class LocalNode(_Node, frozen=True):
    """Ends a region without opening another."""

    kind = "local"


class AggregateNode(_Node, frozen=True):
    """Maintains aggregates per key, and per window if there is one: (name, aggregate text).

    ``emit`` says when a window is output: once, when it closes, or whenever it changes. ``clock``
    is what the time-to-live goes by.
    """

    kind = "aggregate"
    name: str
    columns: tuple[tuple[str, str], ...]
    ttl_ns: int | None = None
    order_by: tuple[OrderColumn, ...] = ()
    window: Window | None = None
    emit: Literal["final", "changes"] = "final"
    clock: Clock = "step"

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it."""
        return self.window is not None or self.clock == "event"


class TopNode(_Node, frozen=True):
    """Keeps the first rows of each key, and of each window if there is one, by some columns.

    With ``ties``, all rows that equal the last of them are among them.
    """

    kind = "top"
    order_by: ClassVar[tuple[OrderColumn, ...]] = ()
    name: str
    count: int
    by: tuple[OrderColumn, ...]
    ties: bool = False
    ttl_ns: int | None = None
    window: Window | None = None

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it."""
        return self.window is not None


class ApplyNode(_Node, frozen=True):
    """Calls the user's function with Arrow tables of the rows of closed windows."""

    kind = "apply"
    order_by: ClassVar[tuple[OrderColumn, ...]] = ()
    name: str
    function: BatchFunction
    output: str
    window: Window

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it."""
        return True


class StatefulMapNode(_Node, frozen=True):
    """Calls the user's function for each row with the state of the row's key.

    ``state`` and ``output`` are schema texts; with ``state`` None, any value may be state. ``time``
    is the output column that is the event time of the output.
    """

    kind = "stateful_map"
    name: str
    function: StatefulFunction
    state: str | None
    output: str
    ttl_ns: int | None = None
    on_error: OnError = "fail"
    order_by: tuple[OrderColumn, ...] = ()
    clock: Clock = "step"
    time: str | None = None

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it: only those further ahead than allowed."""
        return self.clock == "event" or self.time is not None


class StatefulBatchesNode(_Node, frozen=True):
    """Calls the user's function with two Arrow tables: rows, and the state of their keys."""

    kind = "stateful_batches"
    name: str
    function: StatefulBatchFunction
    state: str
    output: str
    ttl_ns: int | None = None
    on_error: OnError = "fail"
    order_by: tuple[OrderColumn, ...] = ()
    clock: Clock = "step"
    time: str | None = None

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it: only those further ahead than allowed."""
        return self.clock == "event" or self.time is not None


class ProcessNode(_Node, frozen=True):
    """Calls the methods of the user's class with the rows of each key."""

    kind = "process"
    name: str
    process: type[Process]
    output: str
    on_error: OnError = "fail"
    order_by: tuple[OrderColumn, ...] = ()
    time: str | None = None

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it: only those further ahead than allowed."""
        return True


class _TimedNode(_Node, frozen=True):
    """An operator over event time, for which rows may come too late."""

    order_by: ClassVar[tuple[OrderColumn, ...]] = ()

    @property
    def has_late_rows(self) -> bool:
        """Whether rows may come too late for it."""
        return True


class JoinNode(_TimedNode, frozen=True):
    """Joins rows of one key: within an interval, in one window, or while they are held.

    Its input is a union of ``sides``. One of ``within_us`` (lower and upper bound), ``window`` and
    ``ttl_us`` is given, or else validation says so.
    """

    kind = "join"
    name: str
    how: JoinKind
    within_us: tuple[int, int] | None = None
    window: Window | None = None
    ttl_us: int | None = None


class AsOfJoinNode(_TimedNode, frozen=True):
    """Joins each left row with the last right row of its key up to its time."""

    kind = "join_as_of"
    name: str
    how: LeftJoinKind
    tolerance_us: int | None = None


class LatestJoinNode(_TimedNode, frozen=True):
    """Joins each left row with the newest right row of its key so far."""

    kind = "join_latest"
    name: str
    how: LeftJoinKind


class DedupNode(_TimedNode, frozen=True):
    """Keeps the first row of each key, and drops others that are near it in event time."""

    kind = "dedup"
    name: str
    within_us: int


class LateNode(_Node, frozen=True):
    """The rows that came too late for an operator, as they came, with its frontier."""

    kind = "late"


class SinkNode(_Node, frozen=True):
    """A sink of rows. It has no consumers. The one without an input takes the dead letters.

    ``letters``: its rows are dead letters, and tasks fill in the step.
    """

    kind = "sink"
    name: str
    sink: Sink
    letters: bool = False


AnyJoinNode: TypeAlias = JoinNode | AsOfJoinNode | LatestJoinNode
StatefulNode: TypeAlias = (
    AggregateNode
    | TopNode
    | ApplyNode
    | StatefulMapNode
    | StatefulBatchesNode
    | ProcessNode
    | AnyJoinNode
    | DedupNode
)
NamedNode: TypeAlias = (
    SourceNode | DistributeNode | MapBatchesNode | TransformNode | StatefulNode | SinkNode
)
GraphNode: TypeAlias = (
    NamedNode
    | WhereNode
    | SplitNode
    | UnionNode
    | SelectNode
    | WithColumnsNode
    | TimestampsNode
    | UntimedNode
    | KeyByNode
    | LocalNode
    | LateNode
)


class Graph(msgspec.Struct, frozen=True):
    """A snapshot of a dataflow; adding to the ``Dataflow`` later does not change it."""

    name: str
    nodes: tuple[GraphNode, ...]

    def node(self, id: int) -> GraphNode:
        """The node with this id."""
        return self.nodes[id]

    def consumers(self, id: int) -> tuple[GraphNode, ...]:
        """The nodes that read this one's output, in order."""
        return tuple(node for node in self.nodes if id in node.inputs)

    def sources(self) -> tuple[SourceNode, ...]:
        """The sources, in order."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    def sinks(self) -> tuple[SinkNode, ...]:
        """The sinks, in order."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    def dead_letters(self) -> SinkNode | None:
        """The sink for rows that could not be processed, if there is one."""
        return next((sink for sink in self.sinks() if not sink.inputs), None)

    def late_of(self, id: int) -> tuple[LateNode, ...]:
        """The streams of rows that came too late for an operator."""
        return tuple(node for node in self.consumers(id) if isinstance(node, LateNode))

    def stateful(self) -> tuple[StatefulNode, ...]:
        """The stateful operators, in order."""
        return tuple(node for node in self.nodes if isinstance(node, StatefulNode))


def label(graph: Graph, node: GraphNode) -> str:
    """An operator's kind and name; without a name, its text and the nearest named operator."""
    if isinstance(node, NamedNode):
        return f'{node.kind} "{node.name}"'
    if isinstance(node, KeyByNode):
        consumers = graph.consumers(node.id)
        # Most keys belong to a key_distribute, which the user knows by name.
        if len(consumers) == 1 and isinstance(consumers[0], DistributeNode):
            return f"key of {label(graph, consumers[0])}"
    before: GraphNode = node
    while before.inputs and not isinstance(before, NamedNode):
        before = graph.node(before.inputs[0])
    # A union of nothing has no named operator before it.
    after = f'{before.kind} "{before.name}"' if isinstance(before, NamedNode) else "nothing"
    return f"{node.kind}({_text(node)}) after {after}"


def _text(node: GraphNode) -> str:
    match node:
        case WhereNode():
            text = f'"{node.condition}"'
        case SplitNode():
            text = f'{node.output}="{node.conditions[-1]}"'
        case SelectNode():
            text = ", ".join(f'"{expression}"' for expression in node.expressions)
        case WithColumnsNode():
            text = ", ".join(f'{name}="{expression}"' for name, expression in node.columns)
        case TimestampsNode():
            text = "ARRIVAL" if node.column is None else f'"{node.column}"'
        case KeyByNode():
            text = ", ".join(f'"{expression}"' for _, expression in node.keys)
        case _:
            text = ""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"
