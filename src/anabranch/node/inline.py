"""The node in the process of its coordinator."""

from __future__ import annotations

import pyarrow as pa

from anabranch.errors import NodeUnreachable, QueryFailed
from anabranch.node.port import Node
from anabranch.node.queries import Queries, QueryLimits
from anabranch.node.state_reader import Snapshot
from anabranch.node.threads import ThreadedNode


class InlineNode:
    """A node in this process, as the coordinator's driver finds it. It cannot be replaced."""

    inline = True

    def __init__(self, node: ThreadedNode, queries: Queries | None) -> None:
        """``queries`` is Spark, where the node runs on it."""
        self._node = node
        self.queries = queries

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
        """Whether the process lives: it asks itself."""
        return True

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """Run a query."""
        if self.queries is None:
            raise QueryFailed(
                "This pipeline takes no queries", do="Run it with Spark in this process."
            )
        return self.queries.run(sql, lambda: self.snapshot, QueryLimits(rows, bytes, seconds))

    def close(self) -> None:
        """End the node's threads."""
        self._node.shut()
