"""The graph of operators, and how times travel through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from anabranch.errors import InvalidTopology
from anabranch.progress.antichain import Antichain
from anabranch.progress.capability import OutputPort
from anabranch.progress.summaries import ZERO, Delay


@dataclass(frozen=True, slots=True, order=True)
class InputPort:
    """An input of an operator.

    >>> print(InputPort("join", 1))
    input 1 of join
    """

    operator: str
    index: int = 0

    def __str__(self) -> str:
        """Name it in a sentence."""
        return f"input {self.index} of {self.operator}"


Port: TypeAlias = InputPort | OutputPort
Reach: TypeAlias = dict[InputPort, Antichain[Delay]]
Connections: TypeAlias = Sequence[Sequence[Delay | None]]
"""For each input of an operator, the delay to each output; None where no rows get there."""


class Topology:
    """Operators with their ports, and the edges from outputs to inputs. It has no loops.

    >>> graph = Topology()
    >>> graph.add_operator("source", inputs=0, outputs=1)
    >>> graph.add_operator("lag", inputs=1, outputs=1, connections=[[Delay(-5)]])
    >>> graph.add_operator("sink", inputs=1, outputs=0)
    >>> graph.add_edge(OutputPort("source"), InputPort("lag"))
    >>> graph.add_edge(OutputPort("lag"), InputPort("sink"))
    >>> graph.reach()[OutputPort("source")][InputPort("sink")]
    Antichain([Delay(by=-5)])
    """

    def __init__(self) -> None:
        """Without an operator."""
        self._connections: dict[str, Connections] = {}
        self._outputs: dict[str, int] = {}
        self._edges: dict[OutputPort, list[InputPort]] = {}

    def add_operator(
        self, name: str, inputs: int, outputs: int, connections: Connections | None = None
    ) -> None:
        """Add an operator; unless told otherwise, every input reaches every output at once.

        >>> graph = Topology()
        >>> graph.add_operator("source", inputs=0, outputs=1)
        >>> graph.add_operator("source", inputs=0, outputs=1)
        Traceback (most recent call last):
        anabranch.errors.InvalidTopology: [progress.topology] two operators are called source...
        """
        if name in self._connections:
            raise InvalidTopology(f"two operators are called {name}", do="Rename one of them.")
        self._connections[name] = connections or [[ZERO] * outputs for _ in range(inputs)]
        self._outputs[name] = outputs

    def add_edge(self, output: OutputPort, to: InputPort) -> None:
        """Let the rows of an output go to an input.

        >>> graph = Topology()
        >>> graph.add_edge(OutputPort("source"), InputPort("sink"))
        Traceback (most recent call last):
        anabranch.errors.InvalidTopology: [progress.topology] there is no output 0 of source...
        """
        for port in (output, to):
            if port not in self:
                raise InvalidTopology(f"there is no {port}", do="Add its operator first.")
        self._edges.setdefault(output, []).append(to)

    def __contains__(self, port: Port) -> bool:
        """Whether there is such a port.

        >>> graph = Topology()
        >>> graph.add_operator("source", inputs=0, outputs=1)
        >>> OutputPort("source") in graph, InputPort("source") in graph
        (True, False)
        """
        if isinstance(port, OutputPort):
            return 0 <= port.index < self._outputs.get(port.operator, 0)
        return 0 <= port.index < len(self._connections.get(port.operator, ()))

    def inputs(self) -> list[InputPort]:
        """All inputs, by operator in the order in which they were added."""
        return [
            InputPort(name, index)
            for name, connections in self._connections.items()
            for index in range(len(connections))
        ]

    def targets(self, output: OutputPort) -> Sequence[InputPort]:
        """The inputs that the rows of an output go to."""
        return self._edges.get(output, ())

    def connections(self, port: InputPort) -> Sequence[Delay | None]:
        """The delay from an input to each output of its operator."""
        return self._connections[port.operator][port.index]

    def order(self) -> list[str]:
        """The operators, each behind those that feed it. Raises ``InvalidTopology`` for a loop.

        >>> graph = Topology()
        >>> graph.add_operator("loop", inputs=1, outputs=1)
        >>> graph.add_edge(OutputPort("loop"), InputPort("loop"))
        >>> graph.order()
        Traceback (most recent call last):
        anabranch.errors.InvalidTopology: [progress.topology] there is a loop: loop, loop...
        """
        feeds: dict[str, set[str]] = {name: set() for name in self._connections}
        for output, inputs in self._edges.items():
            for port in inputs:
                feeds[port.operator].add(output.operator)
        try:
            return list(TopologicalSorter(feeds).static_order())
        except CycleError as error:
            loop = ", ".join(error.args[1])
            raise InvalidTopology(f"there is a loop: {loop}", do="Break it.") from None

    def reach(self) -> dict[Port, Reach]:
        """For every port, the inputs that its times get to, and how they are changed on the way.

        An input reaches itself at once. Several paths give the least delays.
        """
        reach: dict[Port, Reach] = {}
        for name in reversed(self.order()):
            for index in range(self._outputs[name]):
                output = OutputPort(name, index)
                reach[output] = _joined([(ZERO, reach[port]) for port in self.targets(output)])
            for index, delays in enumerate(self._connections[name]):
                port = InputPort(name, index)
                paths = [
                    (delay, reach[OutputPort(name, output)])
                    for output, delay in enumerate(delays)
                    if delay is not None
                ]
                reach[port] = {port: Antichain([ZERO]), **_joined(paths)}
        return reach


def _joined(paths: list[tuple[Delay, Reach]]) -> Reach:
    if len(paths) == 1 and paths[0][0] == ZERO:
        return paths[0][1]
    joined: Reach = {}
    for first, reach in paths:
        for port, rest in reach.items():
            least = joined.setdefault(port, Antichain())
            for delay in rest:
                least.insert(first.followed_by(delay))
    return joined
