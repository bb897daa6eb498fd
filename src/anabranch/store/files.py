"""Durable, write-once files: the primitives under runs, staged output and the journal.

``create_file`` creates a file that appears whole or not at all, and only if its name was free.
``create_bulk`` creates a large file under a name that is unique to its writer. It can be seen
unfinished, which is harmless as long as readers learn the name only after the call has returned.

Guarantees
    When a call returns, the bytes and the name survive a power cut, and so do the names of its
    directories below ``within``. When it raises, it leaves no file. A killed process may leave
    hidden ``.….aside`` files, which ``remove_leftovers`` removes, or an unfinished bulk file that
    nothing refers to.

Non-guarantees
    Removals are not synced: after a power cut a removed file may be back. If the last sync of a
    directory fails, the name may or may not survive; ``create_file`` then keeps the file, and a
    retry raises ``NameTaken``.

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
from typing import TYPE_CHECKING, TypeAlias

from anabranch.errors import DiskFull, NameTaken, StoreError, StoreUnavailable
from anabranch.store.disk import DIRECTORY, FILE_MODE, NEW, ROOM_MODE, disk

if TYPE_CHECKING:
    import pyarrow as pa

Data: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

ASIDE = ".aside"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_SYNCED_AT_ONCE = 64
_asides = itertools.count()


def create_file(
    path: Path,
    data: Data,
    *,
    within: Path | None = None,
    aside: Path | None = None,
    mode: int = FILE_MODE,
) -> None:
    """Create a file that is whole and durable under its name, or raise ``NameTaken``.

    The bytes are written aside and synced before the name exists, so readers never see a torn
    file. Missing parent directories are created and synced, with ``within`` only those below it:
    if ``within`` itself is missing, ``StoreUnavailable`` is raised, because a store that vanished
    (an unmounted disk, a removed directory) must not come back empty. With ``aside`` the bytes are
    first written in that directory, which is never created: removing it stops all such writers.
    """
    room = path.parent
    with store_errors(path, "create"):
        written = _write_aside(path, data, room, within, aside, mode)
        try:
            _link(written, path, room, within)
        finally:
            _discard(written)
        sync_directory(room)


def create_bulk(path: Path, data: Data, *, within: Path | None = None) -> None:
    """Create a durable file under a name unique to its writer, such as that of an attempt."""
    create_bulk_many([(path, data)], within=within)


def create_bulk_many(files: Iterable[tuple[Path, Data]], *, within: Path | None = None) -> None:
    """Create several such files, all or none, syncing each file and each directory once."""
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


def put_file(path: Path, data: Data, *, mode: int = FILE_MODE) -> None:
    """Create a whole file by renaming, for file systems without hard links.

    It replaces any file of that name, so only one caller may create it. The bytes are synced, the
    name is not: call ``sync_directory`` after the last of several.
    """
    with store_errors(path, "create"):
        aside = _write_aside(path, data, path.parent, path.parent, mode=mode)
        try:
            disk().rename(aside, path)
        except BaseException:
            _discard(aside)
            raise


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, which must be free, without a sync; raises ``OSError``."""
    disk().link(source, target)


def ensure_directory(path: Path, *, within: Path | None = None, mode: int = ROOM_MODE) -> None:
    """Create a directory and its missing parents, and sync each into its parent.

    ``mode`` is for the directory itself, and has no effect on one that exists. With ``within``
    nothing at or above that directory is created. Existing directories are synced
    too, once per process, up to ``within`` or the root of their file system: the process that
    created one may have died before it was durable.
    """
    with store_errors(path, "create the directory"):
        _make_directories(path, within, mode)
        for directory in (path, *path.parents):
            if directory == within:
                return
            if str(directory) in disk().durable_directories():
                continue
            if os.path.ismount(directory):
                return
            # A parent that this user may not open cannot be synced; somebody else created it.
            if os.access(directory.parent, os.R_OK):
                _sync_name(directory)


def read_file(path: Path) -> bytes | None:
    """Read all bytes of a file, ``None`` if it does not exist."""
    with store_errors(path, "read"):
        try:
            disk().before_read(path)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def bytes_of_file(path: Path | str) -> pa.Buffer:
    """Map the bytes of a file."""
    with store_errors(path, "read"):
        return map_file(path, os.stat(path).st_size)


def map_file(path: Path | str, size: int) -> pa.Buffer:
    """Map the bytes of a file of known size; raises ``OSError``."""
    import pyarrow as pa  # noqa: PLC0415  (programs that map no file start faster)

    if size == 0:  # nothing to map
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def list_names(directory: Path | str) -> list[str]:
    """List the names in a directory, unordered; a missing directory has none."""
    with store_errors(directory, "list"):
        try:
            return os.listdir(directory)
        except FileNotFoundError:
            return []


def remove_file(path: Path | str) -> bool:
    """Remove a file, without a sync; say whether it existed."""
    with store_errors(path, "remove"):
        try:
            disk().unlink(path)
        except FileNotFoundError:
            return False
        return True


def move_file(path: Path, to: Path) -> bool:
    """Rename a file into a directory that must exist, without a sync; say whether it existed."""
    with store_errors(path, "move"):
        try:
            disk().rename(path, to)
        except FileNotFoundError:
            if not to.parent.is_dir():
                raise
            return False
        return True


def remove_directory(path: Path, to: Path) -> bool:
    """Remove a directory of plain files atomically; say whether it existed.

    It is first renamed to ``to``, where nobody looks for it. From then on no file in it can be
    linked and none can be created in it, not even by a call that has already begun. A killed
    process may leave it under the name ``to``.
    """
    with store_errors(path, "remove the directory"):
        try:
            disk().rename(path, to)
        except FileNotFoundError:
            return False
        for name in os.listdir(to):
            _discard(to / name)
        with contextlib.suppress(OSError):  # a call that had already begun created a file in it
            disk().rmdir(to)
        return True


def remove_leftovers(directory: Path) -> int:
    """Remove the aside files of killed writers from a directory; return how many.

    Only the process that holds the pipeline may call it. It makes a writer in another process
    fail with ``StoreUnavailable``, which leaves nothing behind.
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
    """Sync existing files and directories, whoever wrote them."""
    for start in range(0, len(paths), _SYNCED_AT_ONCE):
        with contextlib.ExitStack() as opened:
            handles: dict[Path, int] = {}
            for path in paths[start : start + _SYNCED_AT_ONCE]:
                with store_errors(path, "sync"):
                    handles[path] = disk().open(path, os.O_RDONLY)
                    opened.callback(disk().close, handles[path])
            _sync(handles)


class store_errors:
    """A context that translates ``OSError`` at ``path`` into the store's errors.

    It surrounds every disk call, so it is a class: a generator takes several times as long.
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
            raise self._translated(error) from error

    def _translated(self, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        kind: type[StoreError] = StoreUnavailable
        do = (
            "Check that the directory exists, that its disk is mounted and writable and that "
            "this user may write there, then start again; nothing was committed."
        )
        if isinstance(error, FileExistsError):
            kind, reason = NameTaken, "the name exists already, and files are never overwritten"
            do = "Nothing was changed. If this is not a retry, look at what made that file."
        elif error.errno in _FULL:
            kind = DiskFull
            do = (
                "Free some space and start again; the unfinished file was removed and the "
                "pipeline continues where it was."
            )
        return kind(f"Cannot {self._doing}: {reason}", where=str(self._path), do=do)


def _write_aside(
    path: Path,
    data: Data,
    room: Path,
    within: Path | None,
    aside: Path | None = None,
    mode: int = FILE_MODE,
) -> str:
    """Write and sync the bytes of a file in ``aside``, else in ``room``; return their path."""
    if aside is not None:
        room = within = aside
    # Exclusive creation keeps the aside name unique even if others count the same numbers: an
    # earlier process with this id that was killed, or one on another host of a shared disk.
    while True:
        written = f"{room}/.{path.name}.{os.getpid()}.{next(_asides)}{ASIDE}"
        try:
            handle = _open_new(written, room, within, mode)
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


def _open_new(path: Path | str, room: Path, within: Path | None, mode: int = FILE_MODE) -> int:
    """Open a new file in ``room``, creating the directory if it is missing."""
    _settle(room, within)
    try:
        return disk().open(path, NEW, mode)
    except FileNotFoundError:
        _make_directories(room, within)
        return disk().open(path, NEW, mode)


def _make_directories(path: Path, within: Path | None, mode: int = ROOM_MODE) -> None:
    if path.is_dir():
        return
    if path in (within, path.parent):
        raise FileNotFoundError(errno.ENOENT, f"the directory {path} is missing")
    _make_directories(path.parent, within)
    # If another process creates it first, sync it here anyway: the other may not have yet.
    with contextlib.suppress(FileExistsError):
        disk().mkdir(path, mode)
    sync_directory(path.parent)
    disk().durable_directories().add(str(path))


def _settle(directory: Path, within: Path | None) -> None:
    """Sync the name of an existing directory below ``within``, once per process.

    Its creator may have been killed before the name was durable; a power cut would then lose
    everything in it.
    """
    if within is None or str(directory) in disk().durable_directories():
        return
    if not str(directory).startswith(os.path.join(within, "")):
        return
    _settle(directory.parent, within)
    if directory.is_dir():
        _sync_name(directory)


def _sync_name(directory: Path) -> None:
    known = disk().durable_directories()
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
