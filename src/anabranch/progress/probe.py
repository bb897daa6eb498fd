"""Probes: how far the rows of an output have come."""

from __future__ import annotations

from typing import Generic

from anabranch.progress.capability import OutputPort
from anabranch.progress.change_batch import T
from anabranch.progress.scope import Scope
from anabranch.progress.topology import InputPort


class Probe(Generic[T]):
    """Tells which times may still come out of an output.

    In a scope that is joining, nothing is known yet: every time may come, and nothing is done.

    >>> from anabranch.progress import ordered_input
    >>> scope = Scope(least=0)
    >>> numbers, port = ordered_input(scope, "numbers")
    >>> probe = Probe(scope, "seen", port)
    >>> numbers.advance_to(5)
    True
    >>> scope.run()
    >>> probe.less_than(5), probe.less_equal(5), probe.done()
    (False, True, False)
    >>> numbers.close()
    >>> scope.run()
    >>> probe.done()
    True
    """

    def __init__(self, scope: Scope[T], name: str, source: OutputPort) -> None:
        """Watch an output. The probe consumes rows and holds nothing."""
        scope.add(name, (source,), 0)
        self._scope, self._port = scope, InputPort(name)
        scope.schedule(name, self._discard)

    def less_than(self, time: T) -> bool:
        """Whether rows before a time may still come."""
        return self._scope.joining or self._scope.frontier(self._port).less_than(time)

    def less_equal(self, time: T) -> bool:
        """Whether rows at or before a time may still come."""
        return self._scope.joining or self._scope.frontier(self._port).less_equal(time)

    def done(self) -> bool:
        """Whether nothing may come any more.

        >>> from anabranch.progress import ordered_input
        >>> scope = Scope(least=0, joining=True)
        >>> probe = Probe(scope, "seen", ordered_input(scope, "numbers")[1])
        >>> scope.run()
        >>> probe.done()
        False
        """
        return not self._scope.joining and not self._scope.frontier(self._port)

    def _discard(self) -> None:
        for _ in self._scope.received(self._port):
            pass
