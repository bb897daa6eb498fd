"""What the driver needs of others: who keeps the journal, who may lead, where the node is."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from anabranch.coordinator.driver.journal_writer import JournalEffect
from anabranch.coordinator.events import Event
from anabranch.protocol.node import Node
from anabranch.records.leader import Member


class EffectWriter(Protocol):
    """Whoever performs the effects that concern the journal."""

    def perform(self, effect: JournalEffect) -> Event | None:
        """Perform an effect; gives its outcome, None if there is nothing to tell of it."""
        ...


class LeaderElection(Protocol):
    """Whoever can make this process the leader."""

    def lead(self, take_over: bool) -> int:
        """Become the leader; gives the number. Raises ``DirectoryInUse``."""
        ...

    @property
    def members(self) -> tuple[Member, ...]:
        """Who takes part, by the entry of the leader."""
        ...

    def release(self) -> None:
        """Lead no longer."""
        ...


class Nodes(Protocol):
    """Whoever finds, starts and ends the node."""

    @property
    def inline(self) -> bool:
        """Whether the node is in this process: its calls return at once."""
        ...

    def find(self, leader: int) -> Node:
        """The node that runs, or a new one. Takes as long as Spark does to start."""
        ...

    def replace(self, leader: int, why: str) -> Node:
        """End the node and start another one. ``NodeUnreachable`` where that cannot be."""
        ...

    def alive(self) -> bool:
        """Whether the node's process is still there, as far as this process can tell."""
        ...

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """Run a query on the node."""
        ...

    def close(self, exiting: bool) -> None:
        """Let go of the node; if it was told to end (``exiting``), see that it does."""
        ...
