"""Capabilities: the right to produce output at a time, or later.

Every output has an account. A capability changes its counts when it is minted, cloned, delayed,
downgraded or released, and at no other moment. While the account counts a time, the frontiers
downstream do not pass it. Python has no dependable destructor: release capabilities yourself, or
use them as context managers. ``Account.holders`` lists those that are still held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self

from anabranch.errors import CapabilityReleased, EarlierTime, OtherOutput
from anabranch.progress.change_batch import ChangeBatch, T
from anabranch.progress.summaries import ZERO, Delay


@dataclass(frozen=True, slots=True, order=True)
class OutputPort:
    """An output of an operator.

    >>> print(OutputPort("join", 1))
    output 1 of join
    """

    operator: str
    index: int = 0

    def __str__(self) -> str:
        """Name it in a sentence."""
        return f"output {self.index} of {self.operator}"


class Account(Generic[T]):
    """The capabilities of one output: who holds them, and changes of their counts to be drained.

    >>> account = Account(OutputPort("source"))
    >>> capability = Capability.mint(account, 3)
    >>> account.changes.drain(), account.holders()
    ([(3, 1)], [Capability(3, output 0 of source)])
    """

    __slots__ = ("_held", "changes", "port")

    def __init__(self, port: OutputPort) -> None:
        """No capability is held yet."""
        self.port = port
        self.changes: ChangeBatch[T] = ChangeBatch()
        self._held: dict[int, Capability[T]] = {}

    def holders(self) -> list[Capability[T]]:
        """The capabilities that are held, in the order in which they were made."""
        return list(self._held.values())

    def hold(self, capability: Capability[T]) -> None:
        """Count a new capability."""
        self._held[id(capability)] = capability
        self.changes.update(capability.time, 1)

    def drop(self, capability: Capability[T]) -> None:
        """Count a capability no more."""
        del self._held[id(capability)]
        self.changes.update(capability.time, -1)


class Capability(Generic[T]):
    """The right to produce output at its time or later, for one output.

    >>> account = Account(OutputPort("source"))
    >>> with Capability.mint(account, 3) as capability:
    ...     later = capability.delayed(5)
    >>> account.holders()
    [Capability(5, output 0 of source)]
    """

    __slots__ = ("_account", "_held", "_time", "note")

    def __init__(self, account: Account[T], time: T, note: str = "") -> None:
        """Mint it; ``note`` says what for, to those who look at the holders."""
        self._account = account
        self._time = time
        self._held = True
        self.note = note
        account.hold(self)

    @classmethod
    def mint(cls, account: Account[T], time: T, note: str = "") -> Self:
        """Make a capability out of nothing. Only what may open a time again should do this.

        >>> Capability.mint(Account(OutputPort("clock")), 0).time
        0
        """
        return cls(account, time, note)

    @property
    def time(self) -> T:
        """The earliest time that it allows."""
        return self._time

    @property
    def port(self) -> OutputPort:
        """The output that it is for."""
        return self._account.port

    @property
    def held(self) -> bool:
        """Whether it still counts: it has not been released."""
        return self._held

    def clone(self) -> Capability[T]:
        """Another one, at the same time for the same output.

        >>> account = Account(OutputPort("source"))
        >>> first = Capability.mint(account, 3)
        >>> second = first.clone()
        >>> account.changes.drain()
        [(3, 2)]
        """
        return self.delayed(self._time)

    def delayed(self, time: T) -> Capability[T]:
        """Another one, at this or a later time. Raises ``EarlierTime`` for any other time.

        >>> capability = Capability.mint(Account(OutputPort("source")), 3)
        >>> capability.delayed(4).time
        4
        >>> capability.delayed(2)
        Traceback (most recent call last):
        anabranch.errors.EarlierTime: [progress.earlier_time] a capability for 3 does not allow 2...
        """
        delayed = self.try_delayed(time)
        if delayed is None:
            raise earlier_time(self._time, time, self.port)
        return delayed

    def try_delayed(self, time: T) -> Capability[T] | None:
        """Another one, at this or a later time; None for any other time.

        >>> capability = Capability.mint(Account(OutputPort("source")), 3)
        >>> capability.try_delayed(2) is None
        True
        """
        self._check_held()
        return Capability(self._account, time, self.note) if self._time <= time else None

    def downgrade(self, time: T) -> bool:
        """Give up what is before a later time; whether anything changed.

        A time that is not later changes nothing: nobody takes back what was given up.

        >>> capability = Capability.mint(Account(OutputPort("source")), 3)
        >>> capability.downgrade(5), capability.downgrade(4), capability.time
        (True, False, 5)
        """
        self._check_held()
        if not self._time <= time or self._time == time:
            return False
        self._account.drop(self)
        self._time = time
        self._account.hold(self)
        return True

    def release(self) -> None:
        """Give it up. Doing so again changes nothing.

        >>> account = Account(OutputPort("source"))
        >>> capability = Capability.mint(account, 3)
        >>> capability.release()
        >>> account.holders(), list(account.changes)
        ([], [])
        """
        if self._held:
            self._held = False
            self._account.drop(self)

    def valid_for(self, account: Account[T]) -> bool:
        """Whether it is held, and for this output.

        >>> account = Account(OutputPort("source"))
        >>> Capability.mint(account, 3).valid_for(Account(OutputPort("source", 1)))
        False
        """
        return self._held and self._account is account

    def _check_held(self) -> None:
        if not self._held:
            raise CapabilityReleased(
                f"a capability for {self._time} was used after its release",
                where=str(self.port),
                do="Clone it before the release, or release it later.",
            )

    def __enter__(self) -> Self:
        """Hold it until the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release it."""
        self.release()

    def __repr__(self) -> str:
        """Its time, output and note."""
        note = f", {self.note}" if self.note else ""
        return f"Capability({self._time}, {self.port}{note})"


class CapabilityRef(Generic[T]):
    """What received rows allow: output at their time or later, while they are being processed.

    It counts nothing itself: the rows do, until they are consumed. Retain a capability from it to
    produce output afterwards.

    >>> account = Account(OutputPort("counts"))
    >>> received = CapabilityRef(3, [account])
    >>> received.retain_for_output(0)
    Capability(3, output 0 of counts)
    >>> received.delayed_for_output(7, 0).time
    7
    """

    __slots__ = ("_accounts", "_summaries", "_time", "_valid")

    def __init__(
        self,
        time: T,
        accounts: Sequence[Account[T]],
        summaries: Sequence[Delay | None] | None = None,
    ) -> None:
        """For the outputs of one operator; a summary of None says that no rows get there."""
        self._time = time
        self._accounts = accounts
        self._summaries = [ZERO] * len(accounts) if summaries is None else summaries
        self._valid = True

    @property
    def time(self) -> T:
        """The time of the received rows."""
        return self._time

    def retain_for_output(self, output: int = 0, note: str = "") -> Capability[T]:
        """A capability at the time of the rows, as the output sees it."""
        account, earliest = self._earliest(output)
        return Capability(account, earliest, note)

    def delayed_for_output(self, time: T, output: int = 0, note: str = "") -> Capability[T]:
        """A capability at a later time. Raises ``EarlierTime`` if it is not.

        >>> CapabilityRef(3, [Account(OutputPort("counts"))]).delayed_for_output(2, 0)
        Traceback (most recent call last):
        anabranch.errors.EarlierTime: [progress.earlier_time] a capability for 3 does not allow 2...
        """
        account, earliest = self._earliest(output)
        if not earliest <= time:
            raise earlier_time(earliest, time, account.port)
        return Capability(account, time, note)

    def expire(self) -> None:
        """End its validity: the rows are consumed.

        >>> received = CapabilityRef(3, [Account(OutputPort("counts"))])
        >>> received.expire()
        >>> received.retain_for_output(0)
        Traceback (most recent call last):
        anabranch.errors.CapabilityReleased: [progress.released] the rows of 3 are consumed ...
        """
        self._valid = False

    def _earliest(self, output: int) -> tuple[Account[T], T]:
        if not self._valid:
            raise CapabilityReleased(
                f"the rows of {self._time} are consumed and allow no output any more",
                do="Retain a capability while the rows are processed.",
            )
        summary = self._summaries[output] if 0 <= output < len(self._accounts) else None
        if summary is None:
            raise OtherOutput(
                f"rows of {self._time} allow no output {output}",
                do="Name an output of the operator that received them, connected to that input.",
            )
        return self._accounts[output], summary.after(self._time)


def earlier_time(held: T, asked: T, port: OutputPort) -> EarlierTime:
    """The error of a time that a capability does not allow."""
    return EarlierTime(
        f"a capability for {held} does not allow {asked}",
        where=str(port),
        do="Ask for that time or a later one.",
    )
