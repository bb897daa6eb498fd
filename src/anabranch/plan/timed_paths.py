"""Where rows get event times on their way, who sees them, and how far they are carried."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from anabranch.dataflow.graph import (
    KeyByNode,
    SourceNode,
    StatefulBatchesNode,
    StatefulMapNode,
    StatefulNode,
    TimestampsNode,
    TransformNode,
    UntimedNode,
)
from anabranch.dataflow.timestamps import InputKey, input_names
from anabranch.dataflow.types.row_type import Column, RowType
from anabranch.dataflow.types.typed import Typed
from anabranch.plan.paths import PathNode, RowPath, RowPaths
from anabranch.plan.physical import (
    ChainNode,
    Relay,
    SeenBy,
    TimeAssignment,
    UnionBranch,
    UntimedRows,
)
from anabranch.protocol.sources import OWN_TIME, PythonSource, read_by_spark

MOST_PARTITIONS = 64
"""Spark sees the times of so many partitions apart: each costs something for every row."""


@dataclass
class TimedPaths:
    """The event times on the paths of a dataflow's rows."""

    typed: Typed
    paths: RowPaths
    _timed: dict[int, bool] = field(default_factory=dict)

    def chain(self, path: RowPath) -> tuple[ChainNode, ...]:
        """The chain of a path, with its ``assign_timestamps`` as those of its source."""
        return tuple(self._chain_node(path, place) for place in range(len(path.chain)))

    def timed(self, consumer: int) -> bool:
        """Whether a consumer gets its rows with their times: it or one behind it may use them."""
        if consumer not in self._timed:
            self._timed[consumer] = self._has_times(consumer) and self._uses_times(consumer)
        return self._timed[consumer]

    def fired(self, producer: int) -> bool:
        """Whether notifications may make rows of a producer, or rows that it gets."""
        node = self.paths.nodes[producer]
        if isinstance(node, SourceNode):
            return False
        passes_on = StatefulMapNode | StatefulBatchesNode
        if isinstance(node, StatefulNode) and not isinstance(node, passes_on):
            return True
        return any(self.fired(path.producer) for path in self.paths.paths_to(producer))

    def told_apart(self, consumer: int) -> bool:
        """Whether the partitions of a consumer's rows are told apart by their order behind it."""
        own = {consumer}
        every = [*self.paths.paths.values(), *self.paths.inflows.values()]
        behind = [path for paths in every for path in paths if path.producer in own]
        found = (node for path in behind for node in self.chain(path))
        return any(
            isinstance(node, TimeAssignment) and node.seen_by is SeenBy.PARTITION for node in found
        )

    def _has_times(self, consumer: int) -> bool:
        node = self.paths.nodes[consumer]
        if isinstance(node, Relay):
            return self._gives_times(self.paths.paths[consumer][0].producer)
        return self.typed.timed(node.inputs[0])

    def _gives_times(self, producer: int) -> bool:
        node = self.paths.nodes[producer]
        if isinstance(node, Relay):
            return self._gives_times(self.paths.paths[producer][0].producer)
        return self.typed.timed(node.id)

    def _uses_times(self, consumer: int) -> bool:
        node = self.paths.nodes[consumer]
        if isinstance(node, StatefulNode | TransformNode):
            return True
        return any(self.timed(after) for after in self.paths.after(consumer))

    def _chain_node(self, path: RowPath, place: int) -> ChainNode:
        node = path.chain[place]
        if isinstance(node, TimestampsNode):
            return self._assignment(path, place, node)
        if isinstance(node, UntimedNode):
            return UntimedRows(node, self._source(path.producer).name)
        return node

    @cached_property
    def _names(self) -> dict[InputKey, str]:
        return input_names(self.typed.graph)

    def _assignment(self, path: RowPath, place: int, node: TimestampsNode) -> TimeAssignment:
        source = self._source(path.producer)
        name = self._names[InputKey(node.id, source.id)]
        seen_by = self._seen_by(path, place, node, source)
        told = node.column == OWN_TIME and self._own(node, source) is None
        return TimeAssignment(node, name, source.name, seen_by, told)

    def _own(self, node: TimestampsNode, source: SourceNode) -> Column | None:
        """The source's own column with the times."""
        row = RowType.of(self.typed.schema(source.id))
        return None if node.column is None else row.find(node.column)

    def _source(self, producer: int) -> SourceNode:
        """The one source of a producer's rows, before any distribution."""
        node = self.paths.nodes[producer]
        if isinstance(node, SourceNode):
            return node
        return self._source(self.paths.paths_to(producer)[0].producer)

    def _seen_by(
        self, path: RowPath, place: int, node: TimestampsNode, source: SourceNode
    ) -> SeenBy:
        producer = self.paths.nodes[path.producer]
        if read_by_spark(source.source) or isinstance(producer, TransformNode):
            return SeenBy.SOURCE
        known = node.column in (None, OWN_TIME) or self._own(node, source) is not None
        if producer is source and known and all(map(_keeps_rows, path.chain[:place])):
            return SeenBy.READER
        # If more come later, the times are known of the source as a whole from then on.
        if isinstance(source.source, PythonSource) and source.source.partitions <= MOST_PARTITIONS:
            return SeenBy.PARTITION
        return SeenBy.SOURCE


def _keeps_rows(node: PathNode) -> bool:
    """Whether every row passes with all its columns."""
    return isinstance(node, UnionBranch | KeyByNode)
