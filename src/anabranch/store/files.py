"""Durable, write-once files: the primitives under runs, staged output and the journal.

Operations
    ``create_file`` makes a file that appears under its name whole or not at all, and only if the
    name was free. ``create_bulk`` and ``create_bulk_many`` do the same for large files whose names
    nobody else can draw: such a file may be seen unfinished, which is harmless as long as readers
    learn the name only after the call has returned.

Guarantees
    When a call returns, the bytes and the name survive a power cut, and so do the names of the
    directories below ``within`` that it is in. When it raises, it leaves no file
    (a kill may leave one: hidden ``.….aside`` files, which ``remove_leftovers`` removes, or an
    unfinished bulk file that nothing names).

Non-guarantees
    Removals are not synced: after a power cut a removed file may be back. An error from the last
    sync of a directory leaves it open whether the name survives; ``create_file`` then keeps the
    file, and whoever asks again is told ``NameTaken``.

Failure
    The operating system's errors become ``DiskFull``, ``NameTaken`` or ``StoreUnavailable``, each
    naming the path and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import pyarrow as pa

from anabranch.errors import DiskFull, NameTaken, StoreError, StoreUnavailable
from anabranch.store.disk import DIRECTORY, NEW, disk

Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

ASIDE = ".aside"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_SYNCED_AT_ONCE = 64
_asides = itertools.count()


def create_file(
    path: Path, data: Data, *, within: Path | None = None, aside: Path | None = None
) -> None:
    """Create a file that is whole and durable under its name, or raise ``NameTaken``.

    The bytes are written aside and synced before the name exists, so a reader never meets a torn
    file. Missing parent directories are created and synced; with ``within`` only those below it
    are, and a missing ``within`` is ``StoreUnavailable``: a store that vanished (an unmounted
    disk, a removed directory) must not come back empty. With ``aside`` the bytes are written in
    that directory, which is never made: once it is gone, nothing can be created by way of it.
    """
    room = path.parent
    with store_errors(path, "create"):
        written = _write_aside(path, data, room, within, aside)
        try:
            _link(written, path, room, within)
        finally:
            _discard(written)
        sync_directory(room)


def create_bulk(path: Path, data: Data, *, within: Path | None = None) -> None:
    """Create one durable file under a name that nobody else can draw, such as an attempt's."""
    create_bulk_many([(path, data)], within=within)


def create_bulk_many(files: Iterable[tuple[Path, Data]], *, within: Path | None = None) -> None:
    """Create several such files, syncing each file once and each directory once.

    If one fails, those of this call that were already made are removed.
    """
    made: list[Path] = []
    try:
        with contextlib.ExitStack() as opened:
            handles: dict[Path, int] = {}
            for path, data in files:
                with store_errors(path, "create"):
                    handles[path] = _open_new(path, path.parent, within)
                    made.append(path)
                    opened.callback(disk().close, handles[path])
                    _write(handles[path], data)
            for directory in dict.fromkeys(path.parent for path in made):
                with store_errors(directory, "sync"):
                    handles[directory] = disk().open(directory, DIRECTORY)
                    opened.callback(disk().close, handles[directory])
            _sync(handles)
    except BaseException:
        for path in made:
            _discard(path)
        raise


def put_file(path: Path, data: Data) -> None:
    """Put a whole file under a name, by renaming: for file systems without hard links.

    It would replace a file of that name, so the caller must be the only one who makes it. The
    bytes are synced, the name is not: call ``sync_directory`` after the last of several.
    """
    with store_errors(path, "create"):
        aside = _write_aside(path, data, path.parent, path.parent)
        try:
            disk().rename(aside, path)
        except BaseException:
            _discard(aside)
            raise


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, which must be free and is not synced; raises ``OSError``."""
    disk().link(source, target)


def ensure_directory(path: Path, *, within: Path | None = None) -> None:
    """Make a directory and its missing parents, each synced into the one above it.

    With ``within`` nothing at or above that directory is made. Those that are there are synced
    too, once in a process, up to ``within`` or to the root of their file system: whoever made one
    of them may have been killed, or failed, before it was durable.
    """
    with store_errors(path, "create the directory"):
        _make_directories(path, within)
        for directory in (path, *path.parents):
            if directory == within:
                return
            if str(directory) in disk().settled():
                continue
            if os.path.ismount(directory):
                return
            # A parent that may not be opened cannot be synced, and was made by somebody else.
            if os.access(directory.parent, os.R_OK):
                _sync_name(directory)


def read_file(path: Path) -> bytes | None:
    """Give all bytes of a file, ``None`` if there is no such file."""
    with store_errors(path, "read"):
        try:
            disk().reading(path)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def bytes_of_file(path: Path | str) -> pa.Buffer:
    """Give the bytes of a file, mapped."""
    with store_errors(path, "read"):
        return map_file(path, os.stat(path).st_size)


def map_file(path: Path | str, size: int) -> pa.Buffer:
    """Give the bytes of a file whose size is known, mapped. ``OSError`` where that fails."""
    if size == 0:  # nothing to map
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def list_names(directory: Path | str) -> list[str]:
    """Give the names in a directory in no particular order; a missing directory has none."""
    with store_errors(directory, "list"):
        try:
            return os.listdir(directory)
        except FileNotFoundError:
            return []


def remove_file(path: Path | str) -> bool:
    """Remove a file; say whether there was one. Not synced, see the module's non-guarantees."""
    with store_errors(path, "remove"):
        try:
            disk().unlink(path)
        except FileNotFoundError:
            return False
        return True


def move_file(path: Path, to: Path) -> bool:
    """Give a file another name, in a directory that must exist; say whether there was one.

    Not synced, as a removal is not.
    """
    with store_errors(path, "move"):
        try:
            disk().rename(path, to)
        except FileNotFoundError:
            if not to.parent.is_dir():
                raise
            return False
        return True


def remove_directory(path: Path, to: Path) -> bool:
    """Remove a directory of plain files at one moment; say whether there was one.

    From then on nothing can be linked from a file that was in it, nor created in it: it gets the
    name ``to`` first, under which nobody looks for it, and a file without a name cannot be
    linked, not even by a call that has begun before. A kill may leave it under the name ``to``.
    """
    with store_errors(path, "remove the directory"):
        try:
            disk().rename(path, to)
        except FileNotFoundError:
            return False
        for name in os.listdir(to):
            _discard(to / name)
        with contextlib.suppress(OSError):  # a file came in by a call that had begun before
            disk().rmdir(to)
        return True


def remove_leftovers(directory: Path) -> int:
    """Remove what killed creators left aside in one directory; give their number.

    Only the process that holds the pipeline may call it. A creator at work in another process
    would merely fail with ``StoreUnavailable`` and leave nothing.
    """
    left = [name for name in list_names(directory) if name.startswith(".") and name.endswith(ASIDE)]
    return sum(remove_file(directory / name) for name in left)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    with store_errors(path, "sync"):
        handle = disk().open(path, DIRECTORY)
    try:
        _sync({path: handle})
    finally:
        disk().close(handle)


def sync_files(paths: Sequence[Path]) -> None:
    """Make files and directories durable that somebody else has written."""
    for start in range(0, len(paths), _SYNCED_AT_ONCE):
        with contextlib.ExitStack() as opened:
            handles: dict[Path, int] = {}
            for path in paths[start : start + _SYNCED_AT_ONCE]:
                with store_errors(path, "sync"):
                    handles[path] = disk().open(path, os.O_RDONLY)
                    opened.callback(disk().close, handles[path])
            _sync(handles)


class store_errors:
    """Translate the operating system's errors at ``path`` into those of the store.

    It is around every call to the disk, so it is a class: a generator takes several times as long.
    """

    __slots__ = ("_doing", "_path")

    def __init__(self, path: Path | str, doing: str) -> None:
        self._path = path
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise _translated(error, self._path, self._doing) from error


def _translated(error: OSError, path: Path | str, doing: str) -> StoreError:
    reason = error.strerror or str(error)
    where = str(path)
    if isinstance(error, FileExistsError):
        return NameTaken(
            f"Cannot {doing}: the name exists already, and files are never overwritten",
            where=where,
            do="Nothing was changed. If this is not a retry, look at what made that file.",
        )
    if error.errno in _FULL:
        return DiskFull(
            f"Cannot {doing}: {reason}",
            where=where,
            do="Free some space and start again; the unfinished file was removed and the "
            "pipeline continues where it was.",
        )
    return StoreUnavailable(
        f"Cannot {doing}: {reason}",
        where=where,
        do="Check that the directory exists, that its disk is mounted and writable and that "
        "this user may write there, then start again; nothing was committed.",
    )


def _write_aside(
    path: Path, data: Data, room: Path, within: Path | None, aside: Path | None = None
) -> str:
    """Write a file that is to be in ``room``, next to its name or in ``aside``; gives where."""
    if aside is not None:
        room = within = aside
    # Exclusive creation makes the aside name unique, whoever else counts the same numbers: an
    # earlier process with this id that was killed, or one on another host of a shared disk.
    while True:
        written = f"{room}/.{path.name}.{os.getpid()}.{next(_asides)}{ASIDE}"
        try:
            handle = _open_new(written, room, within)
        except FileExistsError:
            continue
        try:
            _write(handle, data)
            _sync({path: handle})
        except BaseException:
            _discard(written)
            raise
        finally:
            disk().close(handle)
        return written


def _link(aside: str, path: Path, room: Path, within: Path | None) -> None:
    _settle(room, within)
    try:
        try:
            disk().link(aside, path)
        except FileNotFoundError:
            _make_directories(room, within)
            disk().link(aside, path)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise OSError(error.errno, "this file system has no hard links") from error
        raise


def _open_new(path: Path | str, room: Path, within: Path | None) -> int:
    """Open a new file in a room, which is made if it is missing."""
    _settle(room, within)
    try:
        return disk().open(path, NEW)
    except FileNotFoundError:
        _make_directories(room, within)
        return disk().open(path, NEW)


def _make_directories(path: Path, within: Path | None) -> None:
    if path.is_dir():
        return
    if path in (within, path.parent):
        raise FileNotFoundError(errno.ENOENT, f"the directory {path} is missing")
    _make_directories(path.parent, within)
    # Somebody else may make it at the same time; it is synced here all the same, because the
    # other one may not have come that far.
    with contextlib.suppress(FileExistsError):
        disk().mkdir(path)
    sync_directory(path.parent)
    disk().settled().add(str(path))


def _settle(directory: Path, within: Path | None) -> None:
    """Sync the name of a directory below ``within`` that is there, once in a process.

    Whoever made it may have been killed before it was durable, and all that is in it would go.
    """
    if within is None or str(directory) in disk().settled():
        return
    if not str(directory).startswith(os.path.join(within, "")):
        return
    _settle(directory.parent, within)
    if directory.is_dir():
        _sync_name(directory)


def _sync_name(directory: Path) -> None:
    known = disk().settled()
    if str(directory) not in known:
        sync_directory(directory.parent)
        known.add(str(directory))


def _write(handle: int, data: Data) -> None:
    rest = memoryview(data).cast("B")
    while rest.nbytes:
        rest = rest[disk().write(handle, rest) :]


def _sync(handles: Mapping[Path, int]) -> None:
    for path, error in disk().sync(handles).items():
        with store_errors(path, "sync"):
            raise error


def _discard(path: Path | str) -> None:
    with contextlib.suppress(OSError):
        disk().unlink(path)
