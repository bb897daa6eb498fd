"""A journal's directory on a file system: a file for each entry, linked to its name.

An entry is written aside, synced and linked, so that its name is there with all its bytes or not
at all. A lease of number ``n`` is two things in ``leader/``: the file ``<n>.lock``, locked as long
as the process lives that holds it, and the directory ``aside-<n>-…``, in which its entries are
written. To fence a lease is to remove that directory at one moment: a file that has lost its name
cannot be linked, whoever is about to.

The file system must have hard links and locks. Whether a holder lives is known by ``flock``: where
locks do not reach other hosts, and where a person removes the lock file, a living one is taken for
a dead one.
"""

from __future__ import annotations

import os
import re
import secrets
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import NameTaken
from anabranch.journal.entry_names import LeaderName
from anabranch.store.access import PRIVATE_FILE, PRIVATE_ROOM, limit_rights
from anabranch.store.disk import FILE_MODE, disk
from anabranch.store.files import (
    create_file,
    ensure_directory,
    list_names,
    move_file,
    read_file,
    remove_directory,
    remove_file,
    remove_leftovers,
    store_errors,
    sync_directory,
)
from anabranch.store.lock import try_lock

_ASIDE = re.compile(r"aside-(\d{1,9})-[0-9a-f]+")
_LOCK = re.compile(r"(\d{1,9})\.lock")
_REMOVED = "removed-"


@dataclass(frozen=True, slots=True)
class FileDirectory:
    """A ``JournalDirectory`` of files below ``root``."""

    root: Path

    def where(self, name: str = "") -> str:
        """Give the path of an entry or of the directory."""
        return f"{self.root}/{name}" if name else str(self.root)

    def create(self, name: str, data: bytes, aside: Path | None = None) -> bool:
        """Make an entry, written first in the directory ``aside``, else in its own room."""
        # Where a leader is to be found is not for everybody.
        mode = PRIVATE_FILE if name.startswith(f"{LeaderName.kind}/") else FILE_MODE
        try:
            create_file(self.root / name, data, within=self.root, aside=aside, mode=mode)
        except NameTaken:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """Read a file."""
        return read_file(self.root / name)

    def list(self, room: str) -> Sequence[str]:
        """List a directory, with what is no entry."""
        return list_names(f"{self.root}/{room}")

    def remove(self, name: str) -> bool:
        """Unlink a file."""
        return remove_file(self.root / name)

    def settle(self, room: str) -> None:
        """Sync a directory."""
        sync_directory(self.root / room)

    def claim(self, number: int) -> FileLease | None:
        """Lock the lock file, then make the directory of a lease."""
        ensure_directory(self.room, mode=PRIVATE_ROOM)
        limit_rights(self.room, PRIVATE_ROOM)
        handle = self._try_lock(number)
        if handle is None:
            return None
        # Nobody makes this directory a second time: a leader that has lost its own has lost it
        # for good, even when another process comes to use the same number for a moment.
        lease = FileLease(self, number, self.room / f"aside-{number}-{_drawn()}", handle)
        try:
            with store_errors(lease.aside, "create the directory"):
                disk().mkdir(lease.aside, PRIVATE_ROOM)
        except BaseException:
            lease.release()
            raise
        return lease

    def is_held(self, number: int) -> bool:
        """Try the lock."""
        path = self.lock(number)
        with store_errors(path, "open"):
            try:
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        try:
            # Shared, so that two that look at the same time do not take each other for it.
            return not try_lock(handle, path, shared=True)
        finally:
            os.close(handle)

    def leases(self) -> frozenset[int]:
        """Look for the directories of leases."""
        found = map(_ASIDE.fullmatch, list_names(self.room))
        return frozenset(int(aside[1]) for aside in found if aside is not None)

    @property
    def room(self) -> Path:
        """Where the leases are, among the entries of leaders."""
        return self.root / LeaderName.kind

    def lock(self, number: int) -> Path:
        """The file that the holder of a lease has locked."""
        return self.room / f"{number}.lock"

    def _try_lock(self, number: int) -> int | None:
        path = self.lock(number)
        with store_errors(path, "open"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        mine = False
        try:
            # A leader may have removed the file before we had the lock.
            mine = try_lock(handle, path) and _is_open_at(handle, path)
        finally:
            if not mine:
                os.close(handle)
        return handle if mine else None


class FileLease:
    """A ``Lease`` of a directory of files.

    A child that is forked does not hold it, and its parent's does not last longer by it.
    """

    def __init__(self, directory: FileDirectory, number: int, aside: Path, handle: int) -> None:
        """``handle`` is that of the locked file, ``aside`` where entries are written first."""
        self.number = number
        self.aside = aside
        self._directory = directory
        self._handle: int | None = handle
        _all.add(self)

    @property
    def where(self) -> str:
        """Give the directory in which entries are written first."""
        return str(self.aside)

    @property
    def held(self) -> bool:
        """Say whether the lock was not let go."""
        return self._handle is not None

    def stands(self) -> bool:
        """Say whether the directory is there, too."""
        return self.held and self.aside.is_dir()

    def create(self, name: str, data: bytes) -> bool:
        """Link an entry from the lease's directory."""
        return self._directory.create(name, data, self.aside)

    def remove(self, name: str) -> bool:
        """Move an entry to the lease's directory, and unlink it there.

        Whoever has lost the lease has no such place any more, so that a removal which was
        interrupted by a take-over removes nothing after it.
        """
        aside = self.aside / name.replace("/", "-")
        return move_file(self._directory.root / name, aside) and remove_file(aside)

    def fence(self) -> None:
        """Remove the directories of other leases, then clear what their holders left."""
        leases = self._directory.room
        names = list_names(leases)
        for name in names:
            found = _ASIDE.fullmatch(name)
            # Of the same number there may be one of a candidate that never came to lead.
            if found and int(found[1]) <= self.number and name != self.aside.name:
                remove_directory(leases / name, self._removed())
        sync_directory(leases)
        for name in names:
            found = _LOCK.fullmatch(name)
            if found and int(found[1]) < self.number:
                remove_file(leases / name)
            elif name.startswith(_REMOVED):
                remove_directory(leases / name, self._removed())
        # What creators without a lease have left aside when they were killed.
        for room, rooms, _ in os.walk(self._directory.root):
            rooms[:] = [name for name in rooms if not name.startswith(("aside-", _REMOVED))]
            remove_leftovers(Path(room))

    def release(self) -> None:
        """Remove the directory and the lock file, and let go of the lock."""
        if self._handle is None:
            return
        lock = self._directory.lock(self.number)
        try:
            remove_directory(self.aside, self._removed())
            if _is_open_at(self._handle, lock):
                remove_file(lock)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the lock, and leave everything else."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _removed(self) -> Path:
        return self._directory.room / f"{_REMOVED}{_drawn()}"


def _drawn() -> str:
    return secrets.token_hex(8)


def _is_open_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


_all: weakref.WeakSet[FileLease] = weakref.WeakSet()


def _forget_all() -> None:
    for lease in _all:
        lease.abandon()


# The lock is the open file's, which a fork shares: the child must not hold it after its parent.
os.register_at_fork(after_in_child=_forget_all)
