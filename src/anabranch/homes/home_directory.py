"""The directory of a home: files that appear whole, parts of large ones, and what is in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import time
import zlib
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

import pyarrow as pa

from anabranch.homes.pieces import run_of_piece
from anabranch.records.run_list import BlobInfo

CHUNK = 4 << 20
"""A blob is copied in parts; this is the smallest."""

ASIDE_SECONDS = 600.0
"""How long what a killed task left aside stays."""

_ASIDE = ".aside"
_PART = re.compile(r"(?P<blob>.+)\.(?P<done>\d+)-(?P<checksum>[0-9a-f]{8})\.part")
_STEP = re.compile(r"(\d{12})-")
_asides = itertools.count()


@dataclass(frozen=True, slots=True)
class HomeListing:
    """What is in a room of a home: whole files, and the pieces of runs by the run's name."""

    whole: frozenset[str]
    pieces: dict[str, list[str]]

    def with_piece(self, name: str) -> HomeListing:
        """The same after a piece has come."""
        run = run_of_piece(name)
        assert run is not None, name
        others = [each for each in self.pieces.get(run, []) if each != name]
        return HomeListing(self.whole, {**self.pieces, run: [*others, name]})


class HomeDirectory:
    """A home as files by name; names are those below the store."""

    def __init__(self, path: Path) -> None:
        """Nothing is made yet."""
        self.path = path

    def find(self, room: str) -> HomeListing:
        """What a room has; one that is missing has nothing."""
        whole, pieces = set(), dict[str, list[str]]()
        for name in self._names(room):
            run = run_of_piece(name)
            if run is None:
                whole.add(name)
            else:
                pieces.setdefault(run, []).append(name)
        return HomeListing(frozenset(whole), pieces)

    def put(self, name: str, data: pa.Buffer) -> None:
        """Keep bytes under a name; the file appears whole. Raises ``OSError``."""
        target = f"{self.path}/{name}"
        aside = _aside(target)
        try:
            with _new(aside) as file:
                file.write(data)
            os.replace(aside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise

    def has(self, blob: BlobInfo) -> bool:
        """Whether a blob is here, of the right size. Its checksum is compared when it is read."""
        try:
            return os.stat(self.path / blob.name).st_size == blob.bytes
        except OSError:
            return False

    def add_part(self, blob: BlobInfo, data: pa.Buffer, most: int) -> tuple[int, bool]:
        """Copy up to so many bytes more of a blob; gives how many, and whether it is whole now.

        How much of it is here, and the checksum of that, stand in the name of the part, so that
        the next step goes on with it. A part that is not what its name says is begun anew; so is
        the whole, if it does not come to the checksum that was committed. Raises ``OSError``.
        """
        old, done, checksum = self._part(blob)
        chunk = data[done : done + max(most, CHUNK)]
        checksum = zlib.crc32(chunk, checksum)
        target = self.path / blob.name
        aside = _aside(str(target))
        if old is not None:
            os.replace(old, aside)
        with _new(aside) if old is None else open(aside, "ab") as file:
            file.write(chunk)
        done += chunk.size
        if done < blob.bytes:
            os.replace(aside, target.parent / f"{target.name}.{done}-{checksum:08x}.part")
            return chunk.size, False
        if f"{checksum:08x}" != blob.checksum:
            os.unlink(aside)
            return chunk.size, False
        os.replace(aside, target)
        return chunk.size, True

    def drop(self, room: str, name: str) -> None:
        """Remove a file that turned out to be damaged, or that nobody needs."""
        with contextlib.suppress(OSError):
            os.unlink(self.path / room / name)

    def sweep(self, room: str, keep: frozenset[str], step: int) -> None:
        """Remove a room's files that are not among those to keep and of a step before this one."""
        for name in self._names(room):
            if name.endswith(_ASIDE):
                if self._age(room, name) > ASIDE_SECONDS:
                    self.drop(room, name)
            elif f"{room}/{_base(name)}" not in keep and file_step(name) < step:
                self.drop(room, name)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _part(self, blob: BlobInfo) -> tuple[Path | None, int, int]:
        """How much of a blob is here: the file, its bytes and their checksum."""
        room, _, own = blob.name.rpartition("/")
        best: tuple[Path | None, int, int] = (None, 0, 0)
        for name in self._names(room):
            found = _PART.fullmatch(name)
            if found is None or found["blob"] != own:
                continue
            path, done = self.path / room / name, int(found["done"])
            with contextlib.suppress(OSError):
                if os.stat(path).st_size == done > best[1]:
                    best = (path, done, int(found["checksum"], 16))
        return best

    def _names(self, room: str) -> list[str]:
        with contextlib.suppress(OSError):
            return os.listdir(self.path / room)
        return []

    def _age(self, room: str, name: str) -> float:
        try:
            return time.time() - os.stat(self.path / room / name).st_mtime
        except OSError:
            return 0.0


def _aside(target: str) -> str:
    """A path that nobody else writes, in the room of a file."""
    room, _, own = target.rpartition("/")
    return f"{room}/.{own}.{os.getpid()}.{next(_asides)}{_ASIDE}"


def _new(path: str) -> BufferedWriter:
    """A new file; its room is made where it is missing."""
    try:
        return open(path, "xb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def file_step(name: str) -> int:
    """The step that has written a file; 0 where its name does not say.

    >>> file_step("run/total/000000000007-0-by-customer-1-0-f00d.arrow")
    7
    """
    found = _STEP.match(name.rpartition("/")[2])
    return 0 if found is None else int(found[1])


def _base(name: str) -> str:
    """The file of the store that a file of a home is of."""
    part = _PART.fullmatch(name)
    return run_of_piece(name) or (name if part is None else part["blob"])
