"""The disk under the store: the few calls by which anything in it is made, synced and removed.

Everything durable goes through the current ``Disk``. The real one hands each call to the operating
system. A simulation puts another in its place (``use_disk``), which may lose, tear and refuse
writes; it is then the current one for every thread of the process, so only one simulation may run
in a process at a time. Reading is not replaced: a disk is merely told of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
AnyPath = TypeVar("AnyPath", str, Path)
DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)


class Disk:
    """The operating system's file system. All errors are ``OSError``."""

    def open(self, path: Path | str, flags: int) -> int:
        """Open a file to write or sync it, or a directory to sync it."""
        return os.open(path, flags, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """Write the beginning of some bytes; gives how many."""
        return os.write(handle, data)

    def sync(self, handles: Mapping[AnyPath, int]) -> dict[AnyPath, OSError]:
        """Sync files and directories at the same time; gives those that failed, and why.

        One journal commit of the disk serves several. Also a single one is left to the pool: its
        threads have slept, so they are woken at once when the disk is done, where a thread that
        has computed waits its turn (on two busy cores: 0.8 ms instead of 4 ms).
        """
        try:
            calls = {path: _pool().submit(os.fsync, handle) for path, handle in handles.items()}
        except RuntimeError:  # the interpreter is ending and starts no more threads
            return _synced_here(handles)
        wait(calls.values())
        failed = {}
        for path, call in calls.items():
            try:
                call.result()
            except OSError as error:
                failed[path] = error
        return failed

    def close(self, handle: int) -> None:
        """Close what was opened."""
        os.close(handle)

    def link(self, source: Path | str, target: Path) -> None:
        """Give a file a second name, which must be free."""
        os.link(source, target)

    def rename(self, source: Path | str, target: Path) -> None:
        """Give a file another name, in place of what has that name."""
        os.rename(source, target)

    def unlink(self, path: Path | str) -> None:
        """Remove a name."""
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def mkdir(self, path: Path) -> None:
        """Make a directory in one that exists."""
        os.mkdir(path)

    def reading(self, path: Path | str) -> None:
        """Somebody is about to read a file of the store."""

    def settled(self) -> set[str]:
        """The directories whose names this process knows to be durable; it may add more."""
        return _settled


def disk() -> Disk:
    """The current disk."""
    return _disks[-1]


@contextlib.contextmanager
def use_disk(other: Disk) -> Iterator[None]:
    """Put another disk in place of the current one for a while."""
    _disks.append(other)
    try:
        yield
    finally:
        _disks.remove(other)


_disks = [Disk()]
_settled: set[str] = set()


def _synced_here(handles: Mapping[AnyPath, int]) -> dict[AnyPath, OSError]:
    failed = {}
    for path, handle in handles.items():
        try:
            os.fsync(handle)
        except OSError as error:
            failed[path] = error
    return failed


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix="anabranch-sync")


# A forked child (Spark forks its Python workers) has the pool's object but none of its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
