"""Peers: the processes that the coordinator talks to.

A peer's name and index survive restarts: the leader's entry in the journal holds them. Every order
has an addressee; an undelivered order is repeated to the same peer.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.node import Failure, NodeOrder, NodeReport
from anabranch.records.leader import Member


@dataclass(slots=True)
class Peer:
    """What the coordinator knows of one peer."""

    member: Member
    #: its newest report, and when it arrived
    report: NodeReport | None = None
    heard: float = 0.0
    #: how often it was lost since the last commit, and why it was the last time
    restarts: int = 0
    lost: Failure | None = None
    #: how many open orders this leader has given it
    opens: int = 0
    #: the number of the order that opened the current state; None while none is open
    opened: int | None = None
    #: undelivered orders, and when to repeat them
    again: tuple[NodeOrder, ...] = ()
    again_at: float | None = None

    def forget(self) -> None:
        """Drop reports and pending orders: another process takes its place."""
        self.report = None
        self.again, self.again_at = (), None

    def repeat(self, order: NodeOrder | None, at: float) -> None:
        """Schedule an order to be repeated, None for the call that the phase waits for."""
        if order is not None:
            self.again = (*self.again, order)
        self.again_at = at

    def take_repeats(self, now: float) -> tuple[NodeOrder, ...] | None:
        """The orders to repeat now; None while it is too early."""
        if self.again_at is None or now < self.again_at:
            return None
        orders, self.again, self.again_at = self.again, (), None
        return orders
