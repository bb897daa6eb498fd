"""Programs: dataflows ready to run, typed and lowered, with their operators built."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from anabranch.dataflow.graph import (
    MapBatchesNode,
    ProcessNode,
    SinkNode,
    StatefulBatchesNode,
    StatefulMapNode,
)
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.map_batches import MapBatches
from anabranch.operators.order.order_by import Ordering, ordering_of
from anabranch.operators.state_shape import StateShape
from anabranch.operators.states import StatefulOperator, build, state_shapes, timed_form
from anabranch.operators.timed import TimedOperator
from anabranch.plan.boundary import Boundary
from anabranch.plan.lower import lower
from anabranch.plan.physical import Physical
from anabranch.plan.time_graph import time_graph
from anabranch.protocol.sources import PythonSource
from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.layout import Layout
from anabranch.sources.python_data_source import PLACES, PythonDataSource

SURVIVORS = (MapBatchesNode, StatefulMapNode, StatefulBatchesNode, ProcessNode)
"""The operators that can continue after a failure of the user's code."""


@dataclass(frozen=True)
class Program:
    """The dataflow as every process of a pipeline has it. Pickled once, loaded once per process."""

    typed: Typed
    bins: int

    @cached_property
    def physical(self) -> Physical:
        """The levels of a step."""
        return lower(self.typed)

    @cached_property
    def operators(self) -> dict[int, StatefulOperator]:
        """The stateful operators by node."""
        return {node.id: build(self.typed, node) for node in self.typed.graph.stateful()}

    @cached_property
    def timed(self) -> dict[int, TimedOperator]:
        """The operators that depend on event time, by node."""
        found = {node: timed_form(operator) for node, operator in self.operators.items()}
        return {node: operator for node, operator in found.items() if operator is not None}

    @cached_property
    def orderings(self) -> dict[int, Ordering]:
        """The row order that operators require, by node; only those that require one."""
        found = ((node.id, ordering_of(self.typed, node)) for node in self.typed.graph.stateful())
        return {id: ordering for id, ordering in found if ordering is not None}

    @cached_property
    def time_graph(self) -> TimeGraph:
        """How event time travels through the dataflow."""
        return time_graph(self.typed)

    @cached_property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of each source that Python tasks read: its region's bins."""
        found = {}
        for node in self.physical.sources():
            if isinstance(node.source, PythonDataSource):
                found[node.name] = PLACES
            elif isinstance(node.source, PythonSource):
                found[node.name] = node.source.partitions
        return found

    @cached_property
    def surviving(self) -> frozenset[str]:
        """The operators whose failures become dead letters."""
        nodes = [n for n in self.typed.graph.nodes if isinstance(n, SURVIVORS)]
        return frozenset(node.name for node in nodes if node.on_error == "dead-letter")

    @cached_property
    def functions(self) -> dict[str, MapBatches]:
        """The ``map_batches`` functions by name."""
        return {
            node.name: MapBatches(node.name, node.function, self.typed.schema(node.id))
            for node in self.typed.graph.nodes
            if isinstance(node, MapBatchesNode)
        }

    @cached_property
    def states(self) -> dict[str, tuple[StateShape, str]]:
        """Every state by name, with its operator."""
        return {
            shape.name: (shape, operator.name)
            for operator in self.operators.values()
            for shape in state_shapes(operator)
        }

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The columns of each state's runs."""
        found = {}
        for node, operator in self.operators.items():
            key = self.typed.key(node)
            assert key is not None
            for shape in state_shapes(operator):
                found[shape.name] = shape.layout(key)
        return found

    @cached_property
    def sinks(self) -> dict[str, SinkNode]:
        """The sinks by name."""
        return {node.name: node for node in self.physical.graph.sinks()}

    def boundary(self, level: int) -> Boundary:
        """The boundary before a level."""
        return Boundary(self.physical, self.physical.levels[level])

    def region_of(self, state: str) -> str:
        """The region of a state."""
        regions = self.physical.regions
        _, operator = self.states[state]
        return next(region.name for region in regions if operator in region.operators)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the inputs, not what is derived from them."""
        return (Program, (self.typed, self.bins))
