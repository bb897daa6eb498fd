"""A lock that admits one process at a time to a directory, on one host, and dies with it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from anabranch.errors import DirectoryInUse, StoreUnavailable
from anabranch.store.access import PRIVATE_FILE, limit_rights
from anabranch.store.files import read_file, store_errors

_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


def try_lock(handle: int, path: Path, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; say whether it was free.

    Raises ``StoreUnavailable`` if the file system has no locks.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise StoreUnavailable(
            f"This file system has no locks: {error.strerror}",
            where=str(path),
            do="Move the directory to a local disk, or to NFS with its lock service.",
        ) from error
    return True


class DirectoryLock:
    """A directory's lock, held from ``acquire`` until ``release`` or the end of the process."""

    def __init__(self, directory: Path, name: str = "lock") -> None:
        """Prepare the lock file ``name`` without locking it."""
        self._path = directory / name
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise ``DirectoryInUse`` with the process that holds it."""
        with store_errors(self._path, "open"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            handle = os.open(self._path, flags, PRIVATE_FILE)
            limit_rights(self._path, PRIVATE_FILE)
        try:
            if not try_lock(handle, self._path):
                raise self._in_use(handle)
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def holder(self) -> int | None:
        """The process that holds the lock, or held it last; None if none ever did."""
        written = read_file(self._path)
        return int(written) if written is not None and written.strip().isdigit() else None

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _in_use(self, handle: int) -> DirectoryInUse:
        holder = os.read(handle, 64).decode(errors="replace").strip() or "unknown"
        return DirectoryInUse(
            f"Process {holder} runs this pipeline",
            where=str(self._path.parent),
            do="Shut it down first, or use another directory.",
        )
