"""Notifications: to be told when nothing earlier can come any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic

from anabranch.progress.antichain import Antichain
from anabranch.progress.capability import Capability
from anabranch.progress.change_batch import T


class Notificator(Generic[T]):
    """Capabilities that wait until the frontiers of an operator's inputs have passed their time.

    Each waits with its own right to produce output, so what it waits for cannot be overtaken.

    >>> from anabranch.progress import Account, OutputPort
    >>> account = Account(OutputPort("window"))
    >>> notificator = Notificator()
    >>> notificator.notify_at(Capability.mint(account, 5))
    >>> notificator.notify_at(Capability.mint(account, 3))
    >>> [due.time for due in notificator.due([Antichain([4])])]
    [3]
    >>> notificator.pending()
    [5]
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: list[Capability[T]] = []

    def notify_at(self, capability: Capability[T]) -> None:
        """Wait until the time of a capability has passed. The notificator owns it from here on."""
        self._waiting.append(capability)

    def due(self, frontiers: Sequence[Antichain[T]]) -> Iterator[Capability[T]]:
        """The capabilities whose time no input can come to any more, earlier ones first.

        One per time: the others of that time are released. A time is due when no frontier is at or
        before it. What is asked for while this runs is served too, if it is due.

        >>> from anabranch.progress import Account, OutputPort
        >>> account = Account(OutputPort("window"))
        >>> notificator = Notificator()
        >>> for _ in range(2):
        ...     notificator.notify_at(Capability.mint(account, 3))
        >>> [due.time for due in notificator.due([Antichain()])]
        [3]
        """
        while due := [c for c in self._waiting if not _may_come(c.time, frontiers)]:
            first = next(c for c in due if not any(_before(other, c) for other in due))
            for other in [c for c in due if c.time == first.time and c is not first]:
                self._waiting.remove(other)
                other.release()
            self._waiting.remove(first)
            yield first

    def pending(self) -> list[T]:
        """The times that are waited for."""
        return [capability.time for capability in self._waiting]

    def cancel(self) -> None:
        """Release all that wait: nobody will be notified.

        >>> from anabranch.progress import Account, OutputPort
        >>> account = Account(OutputPort("window"))
        >>> notificator = Notificator()
        >>> notificator.notify_at(Capability.mint(account, 5))
        >>> notificator.cancel()
        >>> notificator.pending(), account.holders()
        ([], [])
        """
        for capability in self._waiting:
            capability.release()
        self._waiting.clear()


def _may_come(time: T, frontiers: Sequence[Antichain[T]]) -> bool:
    return any(frontier.less_equal(time) for frontier in frontiers)


def _before(first: Capability[T], second: Capability[T]) -> bool:
    return first.time <= second.time and first.time != second.time
