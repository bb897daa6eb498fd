"""What the driver needs: a journal, leader election, and access to the node."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from anabranch.coordinator.driver.journal_writer import JournalEffect
from anabranch.coordinator.events import Event
from anabranch.protocol.node import Node
from anabranch.records.leader import Member


class EffectWriter(Protocol):
    """Performs effects on the journal."""

    def perform(self, effect: JournalEffect) -> Event | None:
        """Perform an effect; returns its outcome, if it has one."""


class LeaderElection(Protocol):
    """Makes this process the leader."""

    def lead(self, take_over: bool) -> int:
        """Become the leader; returns the leader's number. Raises ``DirectoryInUse``."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The members that the leader's entry names."""

    def release(self) -> None:
        """Stop leading."""


class Nodes(Protocol):
    """Finds, starts and ends the node."""

    @property
    def inline(self) -> bool:
        """Whether the node is in this process, so that its calls return at once."""

    def find(self, leader: int) -> Node:
        """Find the running node or start one. Takes as long as Spark does to start."""

    def replace(self, leader: int, why: str) -> Node:
        """End the node and start another. Raises ``NodeUnreachable`` if that is impossible."""

    def alive(self) -> bool:
        """Whether the node's process still runs, as far as this process can tell."""

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """Run a query on the node."""

    def close(self, exiting: bool) -> None:
        """Release the node; if it was told to exit (``exiting``), make sure it does."""
