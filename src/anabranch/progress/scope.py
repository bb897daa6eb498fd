"""A scope: operators that exchange rows in memory, with exact progress.

It is the reference for what capabilities mean, small enough to be explored exhaustively, and the
place where a dataflow's frontiers are computed. Rows travel in batches of one time each.

A scope that is *joining* stands for a worker that comes into a running dataflow. Nothing in it may
produce output at a time that others have closed already, so nothing gets a capability at the start:
not operators, not inputs, not unordered inputs. Capabilities come only with rows that arrive, or
with ``acquire``, which takes over what another worker has handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias

from anabranch.errors import InvalidTopology
from anabranch.progress.antichain import Antichain
from anabranch.progress.capability import Account, Capability, CapabilityRef, OutputPort
from anabranch.progress.change_batch import T
from anabranch.progress.topology import Connections, InputPort, Topology
from anabranch.progress.tracker import Held, Tracker

Rows: TypeAlias = Sequence[Any]
Logic: TypeAlias = Callable[[], None]


class Scope(Generic[T]):
    """Operators, the channels between them, and one tracker for all.

    >>> from anabranch.progress import Probe, ordered_input
    >>> scope = Scope(least=0)
    >>> numbers, port = ordered_input(scope, "numbers")
    >>> probe = Probe(scope, "seen", port)
    >>> numbers.send([1, 2])
    >>> numbers.advance_to(5)
    True
    >>> scope.run()
    >>> probe.less_than(5), probe.less_equal(5)
    (False, True)
    """

    def __init__(self, least: T, *, joining: bool = False) -> None:
        """``least`` is the time at which capabilities begin."""
        self.least = least
        self.joining = joining
        self.topology = Topology()
        self._accounts: dict[OutputPort, Account[T]] = {}
        self._channels: dict[InputPort, deque[tuple[T, Rows]]] = {}
        self._logic: dict[str, Logic] = {}
        self._tracker: Tracker[T] | None = None

    def add(
        self,
        name: str,
        sources: Sequence[OutputPort],
        outputs: int,
        connections: Connections | None = None,
    ) -> list[Account[T]]:
        """Add an operator with one input per source; the accounts of its outputs."""
        if self._tracker is not None:
            raise InvalidTopology(
                f"{name} was added to a graph that has run", do="Add all operators first."
            )
        self.topology.add_operator(name, len(sources), outputs, connections)
        for index, source in enumerate(sources):
            self.topology.add_edge(source, InputPort(name, index))
            self._channels[InputPort(name, index)] = deque()
        accounts = [Account[T](OutputPort(name, index)) for index in range(outputs)]
        self._accounts |= {account.port: account for account in accounts}
        return accounts

    def end_joining(self) -> None:
        """From here on the worker is one like all others: it has acquired what it takes over.

        What was built before keeps the capabilities that it has. Probes can be done from here on.
        """
        self.joining = False

    def schedule(self, name: str, logic: Logic) -> None:
        """Call the logic of an operator whenever the scope runs."""
        self._logic[name] = logic

    def acquire(self, port: OutputPort, time: T, note: str = "") -> Capability[T]:
        """Take over a capability that came with state from another worker.

        Who hands over keeps its count until this one is counted: the time is never free between.

        >>> from anabranch.progress import ordered_input
        >>> scope = Scope(least=0, joining=True)
        >>> _, port = ordered_input(scope, "numbers")
        >>> scope.acquire(port, 7)
        Capability(7, output 0 of numbers)
        """
        return Capability.mint(self._accounts[port], time, note)

    def send(self, account: Account[T], time: T, rows: Rows) -> None:
        """Put rows into the channels behind an output."""
        for target in self.topology.targets(account.port):
            self._channels[target].append((time, rows))
            self.tracker.update(target, time, 1)

    def received(self, port: InputPort) -> Iterator[tuple[CapabilityRef[T], Rows]]:
        """The batches that wait at an input; each is consumed when the next is asked for."""
        accounts = [a for p, a in self._accounts.items() if p.operator == port.operator]
        channel = self._channels[port]
        while channel:
            time, rows = channel.popleft()
            reference = CapabilityRef(time, accounts, self.topology.connections(port))
            try:
                yield reference, rows
            finally:
                reference.expire()
                self.tracker.update(port, time, -1)

    @property
    def tracker(self) -> Tracker[T]:
        """The tracker; the graph is complete when it is first used."""
        if self._tracker is None:
            self._tracker = Tracker(self.topology)
        return self._tracker

    def propagate(self) -> None:
        """Let the tracker see what capabilities have changed."""
        for port, account in self._accounts.items():
            for time, change in account.changes.drain():
                self.tracker.update(port, time, change)
        self.tracker.propagate()

    def frontier(self, port: InputPort) -> Antichain[T]:
        """The frontier of an input, as of the last propagation."""
        return self.tracker.frontier(port)

    def run(self) -> None:
        """Run all operators until no rows wait and no frontier moves.

        >>> from anabranch.progress import ordered_input
        >>> scope = Scope(least=0)
        >>> numbers, _ = ordered_input(scope, "numbers")
        >>> scope.run()
        >>> scope.held()
        [Held(port=OutputPort(operator='numbers', index=0), time=0, count=1)]
        """
        self.propagate()
        moved = True
        while moved or any(self._channels.values()):
            for logic in self._logic.values():
                logic()
            self.propagate()
            moved = bool(self.tracker.drain())

    def held(self) -> list[Held[T]]:
        """Who holds what: every counted time, and where."""
        self.propagate()
        return self.tracker.held()
