"""A journal's directory in memory, with the conditional puts of an object store.

Everything is durable at once, so there is nothing to settle. The lock is held while a lease is
checked and an entry put, which stands for a put that is refused once the lease has ended. The
simulation does not use it: it lets the directory of files lose and tear its writes, which shows
more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.errors import StoreUnavailable


@dataclass(slots=True, eq=False)
class MemoryDirectory:
    """A ``JournalDirectory`` for the threads of one process."""

    entries: dict[str, bytes] = field(default_factory=dict)
    #: those that were neither released nor fenced
    standing: list[MemoryLease] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def where(self, name: str = "") -> str:
        """Give a made-up address."""
        return f"memory/journal/{name}" if name else "memory/journal"

    def create(self, name: str, data: bytes) -> bool:
        """Put an entry if there is none."""
        with self.lock:
            if name in self.entries:
                return False
            self.entries[name] = data
            return True

    def read(self, name: str) -> bytes | None:
        """Get an entry."""
        return self.entries.get(name)

    def list(self, room: str) -> Sequence[str]:
        """List by prefix, up to the next slash."""
        prefix = f"{room}/" if room else ""
        with self.lock:
            below = [name for name in self.entries if name.startswith(prefix)]
        return sorted({name.removeprefix(prefix).partition("/")[0] for name in below})

    def remove(self, name: str) -> bool:
        """Delete an entry."""
        with self.lock:
            return self.entries.pop(name, None) is not None

    def settle(self, room: str) -> None:
        """Do nothing: all is durable."""

    def claim(self, number: int) -> MemoryLease | None:
        """Add a lease, unless one of the number is held."""
        with self.lock:
            if self.is_held(number):
                return None
            lease = MemoryLease(self, number)
            self.standing.append(lease)
            return lease

    def is_held(self, number: int) -> bool:
        """Look for a lease that nobody has let go of."""
        with self.lock:
            return any(lease.number == number and lease.held for lease in self.standing)

    def leases(self) -> frozenset[int]:
        """Give the numbers of all leases."""
        with self.lock:
            return frozenset(lease.number for lease in self.standing)


@dataclass(slots=True, eq=False)
class MemoryLease:
    """A ``Lease`` of a directory in memory."""

    directory: MemoryDirectory
    number: int
    held: bool = True

    @property
    def where(self) -> str:
        """Give a made-up address."""
        return self.directory.where(f"leader/{self.number}.lease")

    def stands(self) -> bool:
        """Say whether it is held and has not ended."""
        with self.directory.lock:
            return self.held and self in self.directory.standing

    def create(self, name: str, data: bytes) -> bool:
        """Put an entry if the lease has not ended."""
        with self._in_time():
            return self.directory.create(name, data)

    def remove(self, name: str) -> bool:
        """Delete an entry if the lease has not ended."""
        with self._in_time():
            return self.directory.remove(name)

    def fence(self) -> None:
        """End the others."""
        with self.directory.lock:
            leases = self.directory.standing
            leases[:] = [each for each in leases if each is self or each.number > self.number]

    def release(self) -> None:
        """End it."""
        self.held = False
        with self.directory.lock:
            leases = self.directory.standing
            leases[:] = [each for each in leases if each is not self]

    def abandon(self) -> None:
        """Let go of it; it goes on until it is fenced."""
        self.held = False

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        with self.directory.lock:
            if self not in self.directory.standing:
                raise StoreUnavailable("The lease has ended", where=self.where, do="Lead again.")
            yield
