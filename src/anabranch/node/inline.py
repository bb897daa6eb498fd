"""The node in the process of its coordinator."""

from __future__ import annotations

import pyarrow as pa

from anabranch.errors import NodeUnreachable
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import Node
from anabranch.task.queries import Queries
from anabranch.task.state_reader import Snapshot


class InlineNode:
    """A node in this process, as the coordinator's driver finds it. It cannot be replaced."""

    inline = True

    def __init__(self, node: ThreadedNode) -> None:
        """``node`` is running."""
        self._node = node

    @property
    def queries(self) -> Queries | None:
        """Spark, where the node runs on it."""
        return self._node.queries

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last committed step."""
        return self._node.core.snapshot

    def find(self, leader: int) -> Node:
        """The node."""
        return self._node

    def replace(self, leader: int, why: str) -> Node:
        """Refuse: the node's process is the coordinator's."""
        raise NodeUnreachable(
            f"The node must be replaced ({why}), and it runs in this process",
            do="Nothing committed is lost. Run the pipeline again in a new process.",
        )

    def alive(self) -> bool:
        """Whether all its threads live."""
        return not self._node.broken

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """Run a query."""
        return self._node.query(sql, rows, bytes, seconds)

    def close(self, exiting: bool) -> None:
        """End the node's threads."""
        self._node.shut()
