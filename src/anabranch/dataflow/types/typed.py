"""A validated dataflow: the graph with its types, keys and regions."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from anabranch.dataflow.aggregates.value import AggregateCall
from anabranch.dataflow.durations import Clock
from anabranch.dataflow.graph import Graph, GraphNode
from anabranch.dataflow.types.row_type import RowType


class TypedAggregate(msgspec.Struct, frozen=True):
    """One column of an ``aggregate``: its call, argument types and result field.

    Types and field are None only without an analyzer.
    """

    name: str
    aggregate: AggregateCall
    argument_types: tuple[pa.DataType | None, ...]
    field: pa.Field | None


class TypedHandle(msgspec.Struct, frozen=True):
    """One handle of a ``process`` with its types; with ``value`` None it holds any value.

    ``subkey`` is the key of a map's entries, None for other handles.
    """

    attribute: str
    kind: type[Any]
    value: pa.Schema | None
    subkey: pa.Schema | None
    ttl_ns: int | None
    clock: Clock = "step"

    def state_of(self, operator: str) -> str:
        """The name of its state on disk and in queries."""
        return f"{operator}.{self.attribute}"


class TypedNode(msgspec.Struct, frozen=True):
    """One operator with the types of its output.

    ``key`` is the key that distributes its rows and ``region`` the id of the distribution that
    opened the region; both are None outside a region. ``next_key`` is a key from ``key_by`` that no
    distribution has used yet. ``value`` is the state schema of a ``stateful_map``, None for any
    value. ``aggregates`` are the columns of an ``aggregate``, ``handles`` those of a ``process``.
    ``ordered``: the order of its rows is known. ``timed``: its rows have event times.
    """

    node: GraphNode
    row: RowType
    key: RowType | None = None
    next_key: RowType | None = None
    region: int | None = None
    value: pa.Schema | None = None
    aggregates: tuple[TypedAggregate, ...] = ()
    handles: tuple[TypedHandle, ...] = ()
    ordered: bool = True
    timed: bool = False


class Typed(msgspec.Struct, frozen=True):
    """A valid dataflow. ``nodes[id]`` is the node of that id."""

    graph: Graph
    nodes: tuple[TypedNode, ...]

    def schema(self, id: int) -> pa.Schema:
        """The columns of a node's output; for a sink, those it writes."""
        return self._known(id, self.nodes[id].row)

    def key(self, id: int) -> pa.Schema | None:
        """The key of a node's output, or None outside a region."""
        key = self.nodes[id].key
        return None if key is None else self._known(id, key)

    def region(self, id: int) -> int | None:
        """The id of the distribution that opened the region of a node's output, or None."""
        return self.nodes[id].region

    def ordered(self, id: int) -> bool:
        """Whether the order of a node's output is known."""
        return self.nodes[id].ordered

    def timed(self, id: int) -> bool:
        """Whether the rows of a node's output have event times."""
        return self.nodes[id].timed

    def _known(self, id: int, row: RowType) -> pa.Schema:
        schema = row.schema()
        if schema is None:
            raise ValueError(f"the types at node {id} are unknown: validate with an analyzer")
        return schema
