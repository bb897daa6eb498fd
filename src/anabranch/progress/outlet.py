"""How rows leave an operator: in sessions, each opened by a capability."""

from __future__ import annotations

from typing import Generic

from anabranch.errors import OtherOutput
from anabranch.progress.capability import Account, Capability, CapabilityRef, OutputPort
from anabranch.progress.change_batch import T
from anabranch.progress.scope import Rows, Scope


class Outlet(Generic[T]):
    """An output of an operator, as its logic sees it."""

    def __init__(self, scope: Scope[T], account: Account[T]) -> None:
        """The output that has this account."""
        self._scope, self._account = scope, account

    @property
    def port(self) -> OutputPort:
        """The port that the rows come out of."""
        return self._account.port

    def session(self, capability: Capability[T] | CapabilityRef[T]) -> OutputSession[T]:
        """Open a session at the time of a capability, or of rows that are being processed.

        A capability of another output is refused.

        >>> from anabranch.progress import unordered_input
        >>> scope = Scope(least=0)
        >>> events, capability = unordered_input(scope, "events")
        >>> others, _ = unordered_input(scope, "others")
        >>> others.session(capability)
        Traceback (most recent call last):
        anabranch.errors.OtherOutput: [progress.other_output] a capability of output 0 of events ...
        """
        if isinstance(capability, CapabilityRef):
            with capability.retain_for_output(self.port.index) as retained:
                return self.session(retained)
        if not capability.valid_for(self._account):
            raise OtherOutput(
                f"a capability of {capability.port} opens no session",
                where=str(self.port),
                do="Use one that is held, and for this output.",
            )
        return OutputSession(self._scope, self._account, capability.time)


class OutputSession(Generic[T]):
    """Rows of one time, on their way out."""

    def __init__(self, scope: Scope[T], account: Account[T], time: T) -> None:
        """Made by ``Outlet.session``, which checks the capability."""
        self._scope, self._account, self._time = scope, account, time

    def give(self, rows: Rows) -> None:
        """Send rows."""
        self._scope.send(self._account, self._time, rows)
