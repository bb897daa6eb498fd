"""Peers: whom the coordinator talks to, and what was said.

Each peer has a name and an index that stay over restarts. They are journalled with the leader's
entry. Every order has an addressee; an order that did not arrive is repeated to the same peer.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.node import NodeOrder, NodeReport
from anabranch.records.leader import Member


@dataclass(slots=True)
class Peer:
    """The conversation with one peer."""

    member: Member
    #: its newest report, and when it came
    report: NodeReport | None = None
    heard: float = 0.0
    #: how often it was lost since the last commit
    restarts: int = 0
    #: how many open orders this leader has given it
    opens: int = 0
    #: the order that opened the state that counts; None while none is open
    opened: int | None = None
    #: orders that did not arrive, and when to repeat them
    again: tuple[NodeOrder, ...] = ()
    again_at: float | None = None

    def leave(self) -> None:
        """Nothing is open there any more, as far as is known."""
        self.opened = None

    def forget(self) -> None:
        """Another process takes its place: nothing that was said counts any more."""
        self.report = None
        self.again, self.again_at = (), None

    def repeat(self, order: NodeOrder | None, at: float) -> None:
        """Give an order again later, None for whatever the phase waits for."""
        if order is not None:
            self.again = (*self.again, order)
        self.again_at = at

    def take_repeats(self, now: float) -> tuple[NodeOrder, ...] | None:
        """The orders to repeat now; None while it is too early."""
        if self.again_at is None or now < self.again_at:
            return None
        orders, self.again, self.again_at = self.again, (), None
        return orders
