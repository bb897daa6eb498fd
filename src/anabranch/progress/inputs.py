"""How rows get into a scope: in the order of time, or in any order."""

from __future__ import annotations

from typing import Generic

from anabranch.errors import OtherOutput
from anabranch.progress.capability import Account, Capability, OutputPort
from anabranch.progress.change_batch import T
from anabranch.progress.outlet import Outlet
from anabranch.progress.scope import Rows, Scope


class InputHandle(Generic[T]):
    """An input whose rows come in the order of time. It holds a capability at its time.

    >>> handle = InputHandle(0)
    >>> handle.advance_to(5), handle.advance_to(3), handle.time
    (True, False, 5)
    """

    def __init__(self, time: T) -> None:
        """Not registered with a scope yet."""
        self._time = time
        self._closed = False
        self._scopes: list[tuple[Scope[T], Account[T]]] = []
        self._capabilities: list[Capability[T]] = []

    @property
    def time(self) -> T:
        """The time of the rows that are sent next."""
        return self._time

    def input_from(self, scope: Scope[T], name: str) -> OutputPort:
        """Feed a scope from here on; the port that the rows come out of. There may be several.

        A scope that is joining gives no capability until ``acquire``.

        >>> clicks = InputHandle(0)
        >>> one, other = Scope(least=0), Scope(least=0)
        >>> ports = clicks.input_from(one, "clicks"), clicks.input_from(other, "clicks")
        >>> clicks.advance_to(4)
        True
        >>> [held.time for scope in (one, other) for held in scope.held()]
        [4, 4]
        """
        [account] = scope.add(name, (), 1)
        self._scopes.append((scope, account))
        if not (scope.joining or self._closed):
            self._capabilities.append(Capability.mint(account, self._time, name))
        return account.port

    def acquire(self, time: T) -> None:
        """Take the input over from another worker, at the time that it had there.

        >>> scope = Scope(least=0, joining=True)
        >>> numbers, _ = ordered_input(scope, "numbers")
        >>> scope.held()
        []
        >>> numbers.acquire(7)
        >>> [held.time for held in scope.held()], numbers.time
        ([7], 7)
        """
        self._time = time
        for capability in self._capabilities:
            capability.release()
        self._capabilities = [
            scope.acquire(account.port, time, account.port.operator)
            for scope, account in self._scopes
        ]

    def send(self, rows: Rows) -> None:
        """Send rows at the current time. Raises ``OtherOutput`` without a capability.

        >>> numbers, _ = ordered_input(Scope(least=0, joining=True), "numbers")
        >>> numbers.send([1])
        Traceback (most recent call last):
        anabranch.errors.OtherOutput: [progress.other_output] an input that joins or has ended ...
        """
        if len(self._capabilities) < len(self._scopes):
            raise OtherOutput(
                "an input that joins or has ended sends no rows", do="Acquire it first."
            )
        for (scope, account), capability in zip(self._scopes, self._capabilities, strict=True):
            Outlet(scope, account).session(capability).give(rows)

    def advance_to(self, time: T) -> bool:
        """Promise that no earlier rows follow; whether anything changed.

        An earlier time changes nothing.
        """
        if not self._time <= time or self._time == time:
            return False
        self._time = time
        for capability in self._capabilities:
            capability.downgrade(time)
        return True

    def close(self) -> None:
        """Promise that nothing follows.

        >>> scope = Scope(least=0)
        >>> numbers, _ = ordered_input(scope, "numbers")
        >>> numbers.close()
        >>> scope.held()
        []
        """
        self._closed = True
        for capability in self._capabilities:
            capability.release()
        self._capabilities.clear()


def ordered_input(scope: Scope[T], name: str) -> tuple[InputHandle[T], OutputPort]:
    """An ordered input of one scope, and the port that its rows come out of.

    >>> numbers, port = ordered_input(Scope(least=0), "numbers")
    >>> numbers.time, str(port)
    (0, 'output 0 of numbers')
    """
    handle = InputHandle(scope.least)
    return handle, handle.input_from(scope, name)


def unordered_input(scope: Scope[T], name: str) -> tuple[Outlet[T], Capability[T] | None]:
    """An input whose rows come at the times of capabilities, and the one to begin with.

    None for a scope that is joining.

    >>> events, capability = unordered_input(Scope(least=0), "events")
    >>> events.session(capability.delayed(9)).give([1, 2])
    >>> unordered_input(Scope(least=0, joining=True), "events")[1] is None
    True
    """
    [account] = scope.add(name, (), 1)
    first = None if scope.joining else Capability.mint(account, scope.least, name)
    return Outlet(scope, account), first
