"""The tracker: from counts at ports to the frontier of every input.

Updates are buffered, one call propagates them, one call drains what changed. There are no
callbacks. The invariant: the frontier of an input never passes a time that is counted upstream,
as the path summaries carry it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from anabranch.progress.antichain import Antichain, MutableAntichain
from anabranch.progress.change_batch import Change, ChangeBatch, T
from anabranch.progress.topology import InputPort, Port, Topology


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """A time that is counted at a port: capabilities at an output, rows under way at an input."""

    port: Port
    time: T
    count: int


class Tracker(Generic[T]):
    """Counts of times at the ports of a graph, and the frontiers that follow from them.

    >>> from anabranch.progress import OutputPort
    >>> graph = Topology()
    >>> graph.add_operator("source", inputs=0, outputs=1)
    >>> graph.add_operator("sink", inputs=1, outputs=0)
    >>> source, sink = OutputPort("source"), InputPort("sink")
    >>> graph.add_edge(source, sink)
    >>> tracker = Tracker(graph)
    >>> tracker.update(source, 3, 1)
    >>> tracker.frontier(sink)
    Antichain([])
    >>> tracker.propagate()
    >>> tracker.frontier(sink), tracker.drain()
    (Antichain([3]), [(InputPort(operator='sink', index=0), [(3, 1)])])
    """

    def __init__(self, topology: Topology) -> None:
        """Nothing is counted yet. The topology must not change afterwards."""
        self._reach = topology.reach()
        self._buffered: dict[Port, ChangeBatch[T]] = {}
        self._counts: dict[Port, MutableAntichain[T]] = {
            port: MutableAntichain() for port in self._reach
        }
        self._frontiers: dict[InputPort, MutableAntichain[T]] = {
            port: MutableAntichain() for port in topology.inputs()
        }
        self._changed: dict[InputPort, ChangeBatch[T]] = {}

    def update(self, port: Port, time: T, change: int) -> None:
        """Buffer a change of a count. Nothing is seen of it before ``propagate``."""
        self._buffered.setdefault(port, ChangeBatch()).update(time, change)

    def propagate(self) -> None:
        """Apply the buffered updates, all of them at once, to the frontiers of all inputs.

        Within a propagation a count may rise before another falls: frontiers are computed from the
        sum, so no order of the updates lets a frontier move on and back again.
        """
        buffered, self._buffered = self._buffered, {}
        arriving: dict[InputPort, ChangeBatch[T]] = {}
        for port, changes in buffered.items():
            moved = self._counts[port].update(changes)
            for target, delays in self._reach[port].items():
                batch = arriving.setdefault(target, ChangeBatch())
                for delay in delays:
                    batch.extend((delay.after(time), change) for time, change in moved)
        for target, batch in arriving.items():
            changes_there = self._frontiers[target].update(batch)
            self._changed.setdefault(target, ChangeBatch()).extend(changes_there)

    def drain(self) -> list[tuple[InputPort, list[Change[T]]]]:
        """How frontiers changed since the last call. Inputs whose frontier did not are left out."""
        changed, self._changed = self._changed, {}
        return [(port, batch.drain()) for port, batch in changed.items() if batch]

    def frontier(self, port: InputPort) -> Antichain[T]:
        """The least times that may still come to an input; empty if none may."""
        return self._frontiers[port].frontier()

    def held(self) -> list[Held[T]]:
        """Every time that is counted, and where.

        >>> from anabranch.progress import OutputPort
        >>> graph = Topology()
        >>> graph.add_operator("source", inputs=0, outputs=1)
        >>> tracker = Tracker(graph)
        >>> tracker.update(OutputPort("source"), 3, 2)
        >>> tracker.propagate()
        >>> tracker.held()
        [Held(port=OutputPort(operator='source', index=0), time=3, count=2)]
        """
        return [
            Held(port, time, count)
            for port, counts in self._counts.items()
            for time, count in counts
        ]

    def holding_back(self, port: InputPort) -> list[Held[T]]:
        """What keeps the frontier of an input where it is: the counted times that it waits for.

        >>> from anabranch.progress import OutputPort
        >>> graph = Topology()
        >>> graph.add_operator("slow", inputs=0, outputs=1)
        >>> graph.add_operator("fast", inputs=0, outputs=1)
        >>> graph.add_operator("sink", inputs=1, outputs=0)
        >>> for name in ("slow", "fast"):
        ...     graph.add_edge(OutputPort(name), InputPort("sink"))
        >>> tracker = Tracker(graph)
        >>> tracker.update(OutputPort("slow"), 3, 1)
        >>> tracker.update(OutputPort("fast"), 8, 1)
        >>> tracker.propagate()
        >>> [held.port.operator for held in tracker.holding_back(InputPort("sink"))]
        ['slow']
        """
        frontier = set(self._frontiers[port].frontier())
        return [
            held
            for held in self.held()
            if held.count > 0
            and any(
                delay.after(held.time) in frontier
                for delay in self._reach[held.port].get(port, Antichain())
            )
        ]
