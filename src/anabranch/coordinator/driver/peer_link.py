"""The driver's link to one peer: finds, calls and listens to it, each in its own thread.

A call that hangs therefore cannot keep the loop from answering.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pyarrow as pa

from anabranch.coordinator.driver.threads import Listener
from anabranch.coordinator.effects import Fetch, FindNode, Give, ReplaceNode, Take
from anabranch.coordinator.events import (
    EffectFailed,
    Event,
    InputTaken,
    LeaderFenced,
    NodeLost,
    ResultFetched,
)
from anabranch.errors import AnabranchError, Fenced, NodeUnreachable
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import CalledNode, CloseOrder, Node


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


class PeerLink:
    """The link to one peer. Every outcome is an event."""

    def __init__(
        self, name: str, nodes: Nodes, leader: Callable[[], int], post: Callable[[Event], None]
    ) -> None:
        """Start nothing yet. ``leader`` returns the number of the leader that gives orders."""
        self._name = name
        self._nodes = nodes
        self._leader = leader
        self._post = post
        self._node: Node | None = None
        self._listener: Listener | None = None
        self._calls = ThreadPoolExecutor(1, thread_name_prefix=f"anabranch-{name}-calls")
        self._finding = ThreadPoolExecutor(1, thread_name_prefix=f"anabranch-{name}-find")
        self._exiting = False

    def call(self, effect: Give | Take | Fetch) -> Event | None:
        """Call the peer; returns the outcome if it is known at once."""
        if self._nodes.inline:
            return self._call(effect)
        self._calls.submit(self._call_and_post, effect)
        return None

    def find(self, effect: FindNode | ReplaceNode) -> None:
        """Find or replace the peer, then listen to it."""
        self._finding.submit(self._find, effect)

    def close(self) -> None:
        """Release the peer; if it was told to exit, make sure it does."""
        if self._listener is not None:
            self._listener.stop()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._finding.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(AnabranchError):
            self._nodes.close(self._exiting)

    def _call_and_post(self, effect: Give | Take | Fetch) -> None:
        outcome = self._call(effect)
        if outcome is not None:
            self._post(outcome)

    def _call(self, effect: Give | Take | Fetch) -> Event | None:
        outcome = make_call(self._node, self._leader(), effect)
        if outcome is None and isinstance(effect, Give) and isinstance(effect.order, CloseOrder):
            self._exiting |= effect.order.exit
        return outcome

    def _find(self, effect: FindNode | ReplaceNode) -> None:
        leader = self._leader()
        if self._listener is not None:
            self._listener.stop()
        try:
            if isinstance(effect, ReplaceNode):
                self._node = self._nodes.replace(leader, effect.why)
            else:
                self._node = self._nodes.find(leader)
        except Fenced as error:
            self._post(LeaderFenced(failure_of(error)))
        except BaseException as error:
            self._node = None
            self._post(NodeLost(failure_of(error), self._name))
        else:
            alive = self._nodes.alive
            self._listener = Listener(self._name, self._node, leader, alive, self._post)
            self._listener.start()


def make_call(node: CalledNode | None, leader: int, effect: Give | Take | Fetch) -> Event | None:
    """Call the node, None if it is gone. A failure becomes an event; orders have no outcome."""
    try:
        if node is None:
            raise NodeUnreachable("The node is gone", do="It is being replaced.")
        match effect:
            case Give(order):
                node.order(leader, order)
                return None
            case Take(step):
                return InputTaken(step, node.take(leader, step))
            case Fetch(step, revision):
                return ResultFetched(node.result(leader, step, revision))
    except Fenced as error:
        return LeaderFenced(failure_of(error))
    except AnabranchError as error:
        return EffectFailed(effect, failure_of(error))
