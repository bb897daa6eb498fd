"""The port to where a journal is kept: bytes under names, written once, and a lease to write them.

A *name* is a path with slashes, such as ``commit/0/000000000007``; what is before its last slash is
its *room*. ``FileDirectory`` keeps entries as files, a test's directory in memory. An object store
could be the third. It needs no more than a put that fails if the name is taken
(``If-None-Match: *``), reads and listings that show what was put, and a put that fails if the
object has changed (``If-Match``) for the lease.

Guarantees
    Of all that create a name at the same time, one wins. Nobody ever sees a part of an entry.
    What a ``create`` that answered has made survives a crash and a power cut. Once a lease is
    fenced, nothing is created or removed under it, not even by a call that had begun before.

Non-guarantees
    Removals may be undone by a power cut until their room is settled. So may an entry whose
    creator got no answer.

Failure
    A directory that cannot be reached, or a lease that has ended, is ``StoreUnavailable``; one
    without room is ``DiskFull``. Neither has changed anything, unless it failed so late that the
    entry is there: whoever asks again is told that the name is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class EntryWriter(Protocol):
    """Whatever makes and removes entries: the directory for anybody, a lease for its holder."""

    def create(self, name: str, data: bytes) -> bool:
        """Make an entry, whole and durable; False if the name is taken, and nothing changes.

        A missing room is made, a missing directory never: it must not come back empty. A name
        that is taken may not be durable yet, see ``JournalDirectory.settle``. An object store
        puts with ``If-None-Match: *``.
        """
        ...

    def remove(self, name: str) -> bool:
        """Remove an entry; False if there is none, so it is idempotent."""
        ...


class Lease(EntryWriter, Protocol):
    """The right to write as one leader, until it is released or fenced.

    It creates and removes only as long as it stands. A directory of files
    links entries out of a directory of the lease's own, which whoever fences it removes. An object
    store puts only while the lease has time left, and who fences it waits until that is over.
    """

    @property
    def number(self) -> int:
        """The number of the leader."""
        ...

    @property
    def where(self) -> str:
        """Where the lease is, for people."""
        ...

    @property
    def held(self) -> bool:
        """Whether this process has not let go of it. It may be fenced all the same."""
        ...

    def stands(self) -> bool:
        """Whether it is held and not fenced."""
        ...

    def fence(self) -> None:
        """End all lower leases, and others of this number, whose holders may live or not.

        When it returns, each entry of theirs is there, or it never will be.
        """
        ...

    def release(self) -> None:
        """Let go, so that nobody need fence it. Again: nothing happens."""
        ...

    def abandon(self) -> None:
        """Let go as a process does that is killed: it is not held, and not fenced either."""
        ...


class JournalDirectory(EntryWriter, Protocol):
    """Where a journal is kept. Anybody may read; who writes without a lease is not fenced."""

    def where(self, name: str = "") -> str:
        """Where an entry is, for people; without a name, where they all are."""
        ...

    def read(self, name: str) -> bytes | None:
        """The whole entry; None if there is none."""
        ...

    def list(self, room: str) -> Sequence[str]:
        """What the names in a room say after its slash, in no particular order.

        There may be others than of entries. A missing room has none. An entry that is created or
        removed meanwhile is in it or not.
        """
        ...

    def settle(self, room: str) -> None:
        """Make durable what is in a room and what was removed from it, whoever did so.

        Not needed where every put and every removal is durable at once.
        """
        ...

    def claim(self, number: int) -> Lease | None:
        """Take the lease of a leader's number; None if a living process holds it.

        Makes the directory. The lease keeps nobody else out before it fences.
        """
        ...

    def is_held(self, number: int) -> bool:
        """Whether a living process holds the lease of this number."""
        ...

    def leases(self) -> Collection[int]:
        """The numbers of all leases that were neither released nor fenced.

        Their processes may be dead. Costs one listing.
        """
        ...
