"""Operators of a scope: any number of inputs and outputs, with notifications or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeAlias

from anabranch.progress.antichain import Antichain
from anabranch.progress.capability import Capability, CapabilityRef, OutputPort
from anabranch.progress.change_batch import T
from anabranch.progress.notificator import Notificator
from anabranch.progress.outlet import Outlet
from anabranch.progress.scope import Logic, Rows, Scope
from anabranch.progress.summaries import ZERO, Delay
from anabranch.progress.topology import InputPort


class Inlet(Generic[T]):
    """An input of an operator, as its logic sees it."""

    def __init__(self, scope: Scope[T], port: InputPort) -> None:
        """Rows that come to this port."""
        self._scope, self._port = scope, port

    def __iter__(self) -> Iterator[tuple[CapabilityRef[T], Rows]]:
        """The batches that wait; the reference to each is valid until the next."""
        return self._scope.received(self._port)

    @property
    def frontier(self) -> Antichain[T]:
        """The least times that may still come."""
        return self._scope.frontier(self._port)


Constructor: TypeAlias = Callable[
    [list[Capability[T] | None], list[Inlet[T]], list[Outlet[T]]], Logic
]
"""Gets one capability per output, None in a scope that is joining; gives what is to run."""


class OperatorBuilder(Generic[T]):
    """Puts an operator together: inputs, outputs, then ``build``.

    >>> from anabranch.progress import Probe, ordered_input
    >>> scope = Scope(least=0)
    >>> numbers, port = ordered_input(scope, "numbers")
    >>> builder = OperatorBuilder(scope, "double")
    >>> builder.add_input(port)
    >>> builder.add_output()
    >>> def double(capabilities, inlets, outlets):
    ...     for capability in capabilities:
    ...         capability.release()
    ...     def run():
    ...         for received, rows in inlets[0]:
    ...             outlets[0].session(received).give([2 * row for row in rows])
    ...     return run
    >>> [doubled] = builder.build(double)
    >>> probe = Probe(scope, "seen", doubled)
    >>> numbers.send([1, 2])
    >>> numbers.advance_to(1)
    True
    >>> scope.run()
    >>> probe.less_than(1)
    False
    """

    def __init__(self, scope: Scope[T], name: str) -> None:
        """Without ports."""
        self._scope, self._name = scope, name
        self._sources: list[OutputPort] = []
        self._delays: list[dict[int, Delay | None]] = []
        self._outputs = 0

    def add_input(self, source: OutputPort, delays: dict[int, Delay | None] | None = None) -> None:
        """Add an input. ``delays`` to single outputs; None for one that its rows never get to."""
        self._sources.append(source)
        self._delays.append(delays or {})

    def add_output(self) -> None:
        """Add an output."""
        self._outputs += 1

    def build(self, constructor: Constructor[T]) -> list[OutputPort]:
        """Add the operator to its scope; its outputs.

        Mints one capability per output, at the least time. Release those that are not needed: they
        hold everything downstream back. In a scope that is joining there are none: all that the
        operator may produce comes with rows, or with what it acquires.
        """
        scope = self._scope
        connections = [
            [delays.get(output, ZERO) for output in range(self._outputs)] for delays in self._delays
        ]
        accounts = scope.add(self._name, self._sources, self._outputs, connections)
        capabilities = [
            None if scope.joining else Capability.mint(account, scope.least, self._name)
            for account in accounts
        ]
        inlets = [Inlet(scope, InputPort(self._name, i)) for i in range(len(self._sources))]
        outlets = [Outlet(scope, account) for account in accounts]
        scope.schedule(self._name, constructor(capabilities, inlets, outlets))
        return [account.port for account in accounts]


Work: TypeAlias = Callable[[list[Inlet[T]], Outlet[T]], None]
NotifiedWork: TypeAlias = Callable[[list[Inlet[T]], Outlet[T], Notificator[T]], None]


def source(
    scope: Scope[T], name: str, construct: Callable[[Capability[T] | None, Outlet[T]], Logic]
) -> OutputPort:
    """An operator without input. It keeps its capability for as long as it has more to say.

    >>> from anabranch.progress import Probe
    >>> def count(capability, outlet):
    ...     def run():
    ...         if capability.held and capability.time < 3:
    ...             outlet.session(capability).give([capability.time])
    ...             capability.downgrade(capability.time + 1)
    ...         else:
    ...             capability.release()
    ...     return run
    >>> scope = Scope(least=0)
    >>> probe = Probe(scope, "seen", source(scope, "count", count))
    >>> scope.run()
    >>> probe.done()
    True
    """
    builder = OperatorBuilder(scope, name)
    builder.add_output()
    return builder.build(lambda held, _, outlets: construct(held[0], outlets[0]))[0]


def operator(
    scope: Scope[T], name: str, sources: Sequence[OutputPort], work: Work[T]
) -> OutputPort:
    """An operator with one output that produces only while rows are processed.

    One source makes it unary, two make it binary.

    >>> from anabranch.progress import ordered_input
    >>> scope = Scope(least=0)
    >>> (left, l), (right, r) = ordered_input(scope, "left"), ordered_input(scope, "right")
    >>> def merge(inlets, outlet):
    ...     for inlet in inlets:
    ...         for received, rows in inlet:
    ...             outlet.session(received).give(rows)
    >>> print(operator(scope, "merge", [l, r], merge))
    output 0 of merge
    """

    def ready(inlets: list[Inlet[T]], outlet: Outlet[T], _: Notificator[T]) -> None:
        work(inlets, outlet)

    return notified_operator(scope, name, sources, ready)


def notified_operator(
    scope: Scope[T],
    name: str,
    sources: Sequence[OutputPort],
    work: NotifiedWork[T],
    at: Sequence[T] = (),
) -> OutputPort:
    """An operator with one output that is also notified of times that have passed.

    ``at`` are the first times to be notified of. Those that the operator has no right to any more
    are left out; in a scope that is joining, all of them are.

    >>> from anabranch.progress import ordered_input
    >>> scope, seen = Scope(least=0), []
    >>> numbers, port = ordered_input(scope, "numbers")
    >>> def total(inlets, outlet, notificator):
    ...     for received, rows in inlets[0]:
    ...         notificator.notify_at(received.retain_for_output())
    ...     seen.extend(due.time for due in notificator.due([inlets[0].frontier]))
    >>> closed = notified_operator(scope, "total", [port], total, at=[2])
    >>> numbers.send([1, 2])
    >>> numbers.advance_to(1)
    True
    >>> scope.run()
    >>> seen
    [0]
    """
    builder = OperatorBuilder(scope, name)
    for port in sources:
        builder.add_input(port)
    builder.add_output()

    def construct(
        held: list[Capability[T] | None], inlets: list[Inlet[T]], outlets: list[Outlet[T]]
    ) -> Logic:
        notificator: Notificator[T] = Notificator()
        if (capability := held[0]) is not None:
            with capability:
                delayed = [capability.try_delayed(time) for time in at]
            for one in delayed:
                if one is not None:
                    notificator.notify_at(one)
        return lambda: work(inlets, outlets[0], notificator)

    return builder.build(construct)[0]
