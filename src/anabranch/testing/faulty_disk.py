"""A disk that loses, tears and refuses writes, over a real directory.

Operations
    It takes the place of the disk under the store (``use_disk``). Every call is made by some
    *process* (``acting``). ``crash_at`` ends a process at one of its next calls, ``kill`` at once,
    ``freeze_at`` lets it stand still; ``power_cut`` ends them all and takes back what was not
    synced. ``fill`` leaves so many bytes free, ``fail_syncs`` fails the next ones,
    ``sync_seconds`` makes each take time.

Guarantees
    What was synced, contents by their file and names by their directory, survives a power cut.
    The same seed and the same calls have the same outcome.

Non-guarantees
    Of what was not synced anything may be left: a name that was made may be gone, one that was
    removed may be back, each for itself; a file may have all its bytes, its beginning, or zeros
    in place of its end. Renamed and removed directories do not come back, and files are not
    changed in place.

A process that has crashed goes on as an exception, ``Crash``, through code that would clean up
after an error. None of that happens in a crash, so each further call of that process is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from random import Random

from anabranch.store.disk import DIRECTORY, FILE_MODE, ROOM_MODE, AnyPath, Disk


class Crash(BaseException):
    """The process that made this call is gone."""


@dataclass(slots=True, eq=False)
class _Content:
    """The bytes of a file, whatever its names: how many were written, and synced."""

    written: int = 0
    synced: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    """What a name stood for: a directory has no content. ``grave`` has it when it was removed."""

    content: _Content | None
    grave: str | None = None


@dataclass(slots=True)
class _Handle:
    path: str
    content: _Content | None
    process: str


@dataclass(slots=True)
class FaultyDisk(Disk):
    """See the module. ``graves`` is a directory of its own, on the same real disk as the store."""

    graves: Path
    random: Random
    #: told of every file that is about to be read, and by which process
    on_read: Callable[[str, Path | str], None] = lambda process, path: None
    #: how long a sync takes, and how long all of them took: nobody sleeps
    sync_seconds: float = 0.0
    spent_seconds: float = 0.0
    #: how many calls each process has made
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _process: str = ""
    _settled: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _dead: set[str] = field(default_factory=set)
    _ends: dict[str, int] = field(default_factory=dict)
    _freezes: dict[str, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    _free: int | None = None
    _failing_syncs: int = 0
    _buried: int = 0
    #: below zero: those of directories
    _opened: int = 0
    _handles: dict[int, _Handle] = field(default_factory=dict)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _changes: dict[str, dict[str, list[_Entry | None]]] = field(default_factory=dict)
    #: directories that are known to be there
    _directories: set[str] = field(default_factory=set)

    @contextlib.contextmanager
    def acting(self, process: str) -> Iterator[None]:
        """The calls made meanwhile are those of a process."""
        before = self.switch(process)
        try:
            yield
        finally:
            self.switch(before)

    def switch(self, process: str) -> str:
        """The calls from now on are those of a process; gives whose they were before."""
        before, self._process = self._process, process
        return before

    def crash_at(self, process: str, call: int) -> None:
        """Let a process crash in one of its next calls: 0 is the next."""
        self._ends[process] = self.calls[process] + call

    def freeze_at(self, process: str, call: int, freeze: Callable[[], None]) -> None:
        """Call ``freeze`` before one of the next calls of a process: 0 is the next."""
        self._freezes[process] = (self.calls[process] + call, freeze)

    def freeze_not(self, process: str) -> None:
        """Forget that a process was to freeze."""
        self._freezes.pop(process, None)

    def kill(self, process: str) -> None:
        """End a process. Nothing that it has written is lost."""
        self._dead.add(process)
        self._ends.pop(process, None)
        self._freezes.pop(process, None)
        for handle in [h for h, held in self._handles.items() if held.process == process]:
            self.close(handle)

    def revive(self, process: str) -> None:
        """A new process has this name."""
        self._dead.discard(process)
        self._ends.pop(process, None)

    def fill(self, free: int | None) -> None:
        """Leave so many bytes to write; None: as many as anybody wants."""
        self._free = free

    def fail_syncs(self, number: int) -> None:
        """Let the next syncs fail. What they should have synced is not."""
        self._failing_syncs = number

    def power_cut(self) -> None:
        """End all processes, and take back what was not synced."""
        for handle in list(self._handles):
            self.close(handle)
        self._dead.update(self.calls)
        self._settled.clear()
        self._directories.clear()
        # Parents first: what was in a directory that is gone is gone with it.
        for directory in sorted(self._changes):
            if os.path.isdir(directory):
                for path, history in self._changes[directory].items():
                    self._take_back(Path(path), history)
        self._tear()
        self._changes.clear()
        self._entries.clear()
        self._ends.clear()

    def open(self, path: Path | str, flags: int, mode: int = FILE_MODE) -> int:
        """Open, and note a new name; it is not durable before its directory is synced."""
        self._call()
        name = str(path)
        if flags == DIRECTORY:
            # Opened to be synced, which needs no descriptor.
            if name not in self._directories:
                if not stat.S_ISDIR(os.stat(name).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
                self._directories.add(name)
            self._opened -= 1
            self._handles[self._opened] = _Handle(name, None, self._process)
            return self._opened
        handle = os.open(name, flags, mode)
        content = None
        if flags & os.O_CREAT:
            content = _Content()
            self._becomes(name, _Entry(content))
        elif name in self._entries:
            content = self._entries[name].content
        self._handles[handle] = _Handle(name, content, self._process)
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        """Write as much as there is room for; a crash in the middle leaves the beginning."""
        content = self._handles[handle].content
        assert content is not None, "opened to be synced"
        try:
            self._call()
        except Crash:
            if data.nbytes and handle in self._handles:
                content.written += os.write(handle, data[: self.random.randrange(data.nbytes)])
            raise
        if self._free is not None:
            if not self._free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self._free]
            self._free -= data.nbytes
        written = os.write(handle, data)
        content.written += written
        return written

    def sync(self, handles: Mapping[AnyPath, int]) -> dict[AnyPath, OSError]:
        """Make contents and names durable, one after the other."""
        failed: dict[AnyPath, OSError] = {}
        for path, handle in handles.items():
            self._call()
            self.spent_seconds += self.sync_seconds
            if self._failing_syncs:
                self._failing_syncs -= 1
                failed[path] = OSError(errno.EIO, os.strerror(errno.EIO))
                continue
            held = self._handles[handle]
            if held.content is not None:
                held.content.synced = held.content.written
            else:
                self._changes.pop(held.path, None)
        return failed

    def close(self, handle: int) -> None:
        """Close; allowed to the dead, whose descriptors must not stay open in this process."""
        if self._handles.pop(handle, None) is not None and handle >= 0:
            os.close(handle)

    def link(self, source: Path | str, target: Path) -> None:
        """Link; the second name is not durable."""
        self._call()
        os.link(source, target)
        self._becomes(str(target), _Entry(self._entry(str(source)).content))

    def rename(self, source: Path | str, target: Path) -> None:
        """Rename; neither the old name's end nor the new name is durable.

        The new name of a directory is, and what is in it counts as durable.
        """
        self._call()
        if os.path.isdir(source):
            self._directories.clear()
            return os.rename(source, target)
        moved = self._entry(str(source))
        moved.grave = self._grave()
        os.link(source, moved.grave)
        if os.path.exists(target):
            self._bury(str(target))
        os.rename(source, target)
        self._becomes(str(source), None)
        self._becomes(str(target), _Entry(moved.content))

    def unlink(self, path: Path | str) -> None:
        """Remove a name, which may be back after a power cut."""
        self._call()
        name = str(path)
        self._bury(name)
        self._becomes(name, None)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory, for good."""
        self._call()
        self._directories.clear()
        os.rmdir(path)
        self._entries.pop(str(path), None)

    def mkdir(self, path: Path, mode: int = ROOM_MODE) -> None:
        """Make a directory; its name is not durable."""
        self._call()
        os.mkdir(path, mode)
        self._becomes(str(path), _Entry(None))

    def before_read(self, path: Path | str) -> None:
        """Tell whoever wants to know."""
        if self._process in self._dead:
            raise Crash(self._process)
        self.on_read(self._process, path)

    def durable_directories(self) -> set[str]:
        """What the process that acts knows to be durable."""
        return self._settled[self._process]

    def _call(self) -> None:
        process = self._process
        if process in self._dead:
            raise Crash(process)
        number = self.calls[process]
        self.calls[process] = number + 1
        if process in self._freezes and number >= self._freezes[process][0]:
            _, freeze = self._freezes.pop(process)
            freeze()
            if process in self._dead:
                raise Crash(process)
        if number >= self._ends.get(process, number + 1):
            self._dead.add(process)
            raise Crash(process)

    def _entry(self, name: str) -> _Entry:
        """What a name stands for; a file from before is durable."""
        found = self._entries.get(name)
        if found is None:
            size = os.stat(name).st_size
            found = self._entries[name] = _Entry(_Content(size, size))
        return found

    def _becomes(self, name: str, entry: _Entry | None) -> None:
        changes = self._changes.setdefault(name[: name.rindex("/")], {})
        changes.setdefault(name, [self._entries.get(name)]).append(entry)
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry

    def _bury(self, name: str) -> None:
        # The file must be there before an entry is made up for it.
        entry = self._entry(name)
        entry.grave = self._grave()
        os.rename(name, entry.grave)

    def _grave(self) -> str:
        self._buried += 1
        return f"{self.graves}/{self._buried}"

    def _take_back(self, path: Path, history: list[_Entry | None]) -> None:
        chosen = self.random.randrange(len(history))
        if chosen == len(history) - 1 or history[chosen] is history[-1]:
            return
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        entry = history[chosen]
        if entry is None:
            self._entries.pop(str(path), None)
            return
        assert entry.grave is not None
        os.link(entry.grave, path)
        self._entries[str(path)] = entry

    def _tear(self) -> None:
        """Let files end where their bytes were not synced. Names of one file stay of one kind."""
        torn: dict[_Content, tuple[int, int]] = {}
        for path, entry in sorted(self._entries.items(), key=itemgetter(0)):
            content = entry.content
            if content is None or content.synced == content.written or not os.path.exists(path):
                continue
            if content not in torn:
                torn[content] = self._kept(content)
            data = Path(path).read_bytes()
            kept, zeros = torn[content]
            # Another file under the name: this one may be mapped somewhere in this process.
            aside = self._grave()
            Path(aside).write_bytes(data[:kept] + bytes(zeros))
            os.replace(aside, path)

    def _kept(self, content: _Content) -> tuple[int, int]:
        """How many bytes stay, and how many zeros follow."""
        match self.random.randrange(4):
            case 0:
                return content.written, 0
            case 1:
                return content.synced, 0
            case 2:
                return self.random.randint(content.synced, content.written), 0
            case _:
                kept = self.random.randint(content.synced, content.written)
                return kept, content.written - kept
