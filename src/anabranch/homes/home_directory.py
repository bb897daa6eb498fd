"""The directory of a home: files that appear whole, and parts of large files."""

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
from anabranch.store.access import PRIVATE_ROOM
from anabranch.store.retention import file_step

CHUNK = 4 << 20
"""The smallest part in which a blob is copied."""

ASIDE_SECONDS = 600.0
"""How long the aside files of a killed task stay."""

_ASIDE = ".aside"
_PART = re.compile(r"(?P<blob>.+)\.(?P<done>\d+)-(?P<checksum>[0-9a-f]{8})\.part")
_asides = itertools.count()


@dataclass(frozen=True, slots=True)
class HomeListing:
    """The files in a room of a home: whole files, and the pieces of runs by the run's name."""

    whole: set[str]
    pieces: dict[str, list[str]]


class HomeDirectory:
    """The files of a home, by their names below the store."""

    def __init__(self, path: Path) -> None:
        """The directory is created with the first file."""
        self.path = path

    def listing(self, room: str) -> HomeListing:
        """List the files of a room; a missing room has none."""
        whole, pieces = set[str](), dict[str, list[str]]()
        for name in self._names(room):
            run = run_of_piece(name)
            if run is None:
                whole.add(name)
            else:
                pieces.setdefault(run, []).append(name)
        return HomeListing(whole, pieces)

    def put(self, name: str, data: pa.Buffer) -> None:
        """Write a file that appears whole; raises ``OSError``."""
        target = f"{self.path}/{name}"
        aside = _aside(target)
        try:
            with self._new(aside) as file:
                file.write(data)
            os.replace(aside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise

    def has(self, blob: BlobInfo) -> bool:
        """Whether the home has a blob of the right size; its checksum is compared on reading."""
        try:
            return os.stat(self.path / blob.name).st_size == blob.bytes
        except OSError:
            return False

    def add_part(self, blob: BlobInfo, data: pa.Buffer, most: int) -> tuple[int, bool]:
        """Copy about ``most`` more bytes of a blob; return how many, and whether it is complete.

        The name of a part has its size and checksum, so the next step can continue it. A part of
        another size is started anew, and so is a blob that ends with another checksum than the
        committed one. Raises ``OSError``.
        """
        old, done, checksum = self._part(blob)
        chunk = data[done : done + max(most, CHUNK)]
        checksum = zlib.crc32(chunk, checksum)
        target = self.path / blob.name
        aside = _aside(str(target))
        if old is not None:
            os.replace(old, aside)
        with self._new(aside) if old is None else open(aside, "ab") as file:
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
        """Remove a damaged or unneeded file."""
        with contextlib.suppress(OSError):
            os.unlink(self.path / room / name)

    def sweep(self, room: str, keep: frozenset[str], step: int) -> None:
        """Remove a room's files from before ``step`` that are not in ``keep``."""
        for name in self._names(room):
            if name.endswith(_ASIDE):
                if self._age(room, name) > ASIDE_SECONDS:
                    self.drop(room, name)
            elif f"{room}/{_base(name)}" not in keep and file_step(name) < step:
                self.drop(room, name)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _new(self, path: str) -> BufferedWriter:
        """Open a new file, creating its room, and the home for its owner alone, if missing."""
        try:
            return open(path, "xb")
        except FileNotFoundError:
            os.makedirs(self.path.parent, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, PRIVATE_ROOM)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return open(path, "xb")

    def _part(self, blob: BlobInfo) -> tuple[Path | None, int, int]:
        """The largest part of a blob: the file, its bytes and their checksum."""
        room, _, own = blob.name.rpartition("/")
        best: tuple[Path | None, int, int] = (None, 0, 0)
        for name in self._names(room):
            match = _PART.fullmatch(name)
            if match is None or match["blob"] != own:
                continue
            path, done = self.path / room / name, int(match["done"])
            with contextlib.suppress(OSError):
                if os.stat(path).st_size == done > best[1]:
                    best = (path, done, int(match["checksum"], 16))
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
    """A unique path beside a file, to write it before it gets its name."""
    room, _, own = target.rpartition("/")
    return f"{room}/.{own}.{os.getpid()}.{next(_asides)}{_ASIDE}"


def _base(name: str) -> str:
    """The name of the store's file that a home's file is a copy, piece or part of."""
    part = _PART.fullmatch(name)
    return run_of_piece(name) or (name if part is None else part["blob"])
