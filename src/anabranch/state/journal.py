"""The journal: plans, commits and how far output is published, one exclusively created file each.

Operations
    ``create`` an entry, ``read`` one, find the newest plan of a step and the newest commit, and
    ``trim`` what retention no longer needs. A body is bytes that the caller understands; the
    journal only keeps it, with a *nonce* by which a creator recognises its own entry.

Guarantees
    The first creator of a name wins, whoever it is, and everybody else is given the winner's
    entry. A creator that lost sight of its own success (a retry after an error) is told that it
    won. What ``create`` answers, and what ``latest_commit`` and ``latest_plan`` find, survives a
    power cut. A name is never used twice: whoever creates an entry that was trimmed away is told
    so. Listing costs what is kept, not what ever was.

Non-guarantees
    Trimmed entries may be back after a power cut, until the next ``trim``.

Failure and recovery
    An entry says its own name, length and checksum. One that is truncated, flipped or under a
    wrong name is ``CorruptEntry``; one of a newer format is ``FutureFormat``. Reading changes
    nothing.

On disk, an entry is one line ``anabranch <format> <name> <crc32> <length> <nonce>`` and the body.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from anabranch.errors import CorruptEntry, FutureFormat, MissingEntry, NameTaken
from anabranch.state.files import (
    create_file,
    ensure_directory,
    list_names,
    read_file,
    remove_file,
    sweep,
    sync_directory,
)

FORMAT = 1

_HEADER = re.compile(rb"anabranch (\d{1,9}) (\S+) ([0-9a-f]{8}) (\d{1,15}) (\S+)\n")
_FORMAT_ALONE = re.compile(rb"anabranch (\d{1,9}) ")
_LONGEST_HEADER = 512
_NONCE = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_STEP_NAME = re.compile(r"\d{12}")
_PLAN_NAME = re.compile(r"(\d{12})\.(\d+)")


@dataclass(frozen=True, slots=True)
class IdentityName:
    """The entry that says whose journal this is."""

    kind: ClassVar[str] = "identity"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return self.kind


@dataclass(frozen=True, slots=True, order=True)
class PlanName:
    """A revision of the plan of a step.

    >>> str(PlanName(step=7, revision=2))
    'plan/0/000000000007.2'
    """

    step: int
    revision: int
    branch: int = 0
    kind: ClassVar[str] = "plan"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}.{self.revision}"


@dataclass(frozen=True, slots=True, order=True)
class CommitName:
    """The commit of a step.

    >>> str(CommitName(step=7))
    'commit/0/000000000007'
    """

    step: int
    branch: int = 0
    kind: ClassVar[str] = "commit"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}"


@dataclass(frozen=True, slots=True, order=True)
class PublishedName:
    """The statement that the output of a step and of all before it is published.

    >>> str(PublishedName(step=7))
    'published/0/000000000007'
    """

    step: int
    branch: int = 0
    kind: ClassVar[str] = "published"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}"


EntryName: TypeAlias = IdentityName | PlanName | CommitName | PublishedName


@dataclass(frozen=True, slots=True)
class Entry:
    """What the journal holds under a name."""

    name: EntryName
    body: bytes
    nonce: str


@dataclass(frozen=True, slots=True)
class Won:
    """The entry is in the journal and it is the caller's."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody else was first; theirs counts."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The step is long over: every step below ``floor`` was removed. Nothing was created."""

    floor: int


Outcome: TypeAlias = Won | Taken | Trimmed


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal in a directory.

    The directory must exist (``prepare`` makes it); if it vanishes while a pipeline runs,
    creating an entry fails instead of starting an empty journal.
    """

    directory: Path

    def prepare(self) -> None:
        """Make the directory if it is missing, and clear what killed creators left aside.

        Only the process that holds the pipeline may call it.
        """
        ensure_directory(self.directory)
        for directory in self._directories():
            sweep(directory)

    def create(self, name: EntryName, body: bytes, nonce: str) -> Outcome:
        """Create an entry, once and durably; see ``Outcome`` for the three answers.

        The nonce must be drawn anew for every entry a caller means to create and kept over its
        retries.
        """
        if not _NONCE.fullmatch(nonce):
            raise ValueError(f"a nonce is 1 to 128 of A-Z a-z 0-9 _ . -, not {nonce!r}")
        path = self._path(name)
        try:
            create_file(path, _sealed(name, body, nonce), within=self.directory)
        except NameTaken:
            return self._taken(name, nonce)
        # Only now, with the name in place, the floor decides: trimming writes the floor before it
        # frees any name, so a name that was free because it had been trimmed shows up here.
        floor = self._floor_above(name)
        if floor is None:
            return Won()
        remove_file(path)
        return Trimmed(floor)

    def read(self, name: EntryName) -> Entry:
        """Give an entry, or raise ``MissingEntry``, ``CorruptEntry`` or ``FutureFormat``."""
        entry = self.find(name)
        if entry is None:
            raise MissingEntry(
                f"The journal has no entry {name}",
                where=str(self._path(name)),
                do="Nothing was changed. Restore the directory from a copy, or open an older "
                "checkpoint.",
            )
        return entry

    def find(self, name: EntryName) -> Entry | None:
        """Give an entry, ``None`` if there is none; damage raises as in ``read``."""
        path = self._path(name)
        data = read_file(path)
        return None if data is None else _opened(name, data, path)

    def commits(self, branch: int = 0) -> tuple[CommitName, ...]:
        """Give the names of all commits that are kept, oldest first."""
        return tuple(CommitName(step, branch) for step in self._steps(CommitName.kind, branch))

    def plans(self, branch: int = 0) -> tuple[PlanName, ...]:
        """Give the names of all plans that are kept, by step and revision."""
        matches = map(_PLAN_NAME.fullmatch, list_names(self._branch(PlanName.kind, branch)))
        return tuple(sorted(PlanName(int(m[1]), int(m[2]), branch) for m in matches if m))

    def latest_commit(self, branch: int = 0) -> CommitName | None:
        """Give the name of the newest commit, after making sure that it is durable."""
        commits = self.commits(branch)
        if not commits:
            return None
        self._settle(commits[-1])
        return commits[-1]

    def latest_plan(self, step: int, branch: int = 0) -> PlanName | None:
        """Give the highest revision of a step's plan, after making sure that it is durable."""
        plans = [name for name in self.plans(branch) if name.step == step]
        if not plans:
            return None
        self._settle(plans[-1])
        return plans[-1]

    def floor(self, branch: int = 0) -> int | None:
        """Give the step below which entries were trimmed, ``None`` if that never happened."""
        return max(self._steps("floor", branch), default=None)

    def trim(
        self, below: int, *, keep: Collection[int] = (), branch: int = 0
    ) -> tuple[EntryName, ...]:
        """Remove the entries of the steps below ``below``, but for those to keep.

        Gives the names that were removed. Kept steps stay until a trim that does not keep them.
        """
        floor = self.floor(branch)
        if floor is None or floor < below:
            self._raise_floor(below, branch)
        listed: list[PlanName | CommitName | PublishedName] = [
            *self.plans(branch),
            *self.commits(branch),
            *(PublishedName(step, branch) for step in self._steps(PublishedName.kind, branch)),
        ]
        old = tuple(name for name in listed if name.step < below and name.step not in keep)
        for name in old:
            remove_file(self._path(name))
        return old

    def _raise_floor(self, floor: int, branch: int) -> None:
        directory = self._branch("floor", branch)
        with contextlib.suppress(NameTaken):  # another process raised it to the same step
            create_file(directory / f"{floor:012d}", b"", within=self.directory)
        # The one before stays: a listing that runs meanwhile may miss a name that is just being
        # added, and must then still see a floor.
        floors = sorted(name for name in list_names(directory) if _STEP_NAME.fullmatch(name))
        for name in floors[:-2]:
            remove_file(directory / name)

    def _taken(self, name: EntryName, nonce: str) -> Outcome:
        # Its creator may have been killed before it synced the name; the answer must hold.
        self._settle(name)
        entry = self.find(name)
        if entry is None:  # removed since, which only trimming does
            floor = self._floor_above(name)
            if floor is not None:
                return Trimmed(floor)
            entry = self.read(name)
        return Won() if entry.nonce == nonce else Taken(entry)

    def _floor_above(self, name: EntryName) -> int | None:
        if isinstance(name, IdentityName):
            return None
        floor = self.floor(name.branch)
        return floor if floor is not None and name.step < floor else None

    def _settle(self, name: EntryName) -> None:
        sync_directory(self._path(name).parent)

    def _path(self, name: EntryName) -> Path:
        return self.directory / str(name)

    def _branch(self, kind: str, branch: int) -> Path:
        return self.directory / kind / str(branch)

    def _steps(self, kind: str, branch: int) -> list[int]:
        names = list_names(self._branch(kind, branch))
        return sorted(int(name) for name in names if _STEP_NAME.fullmatch(name))

    def _directories(self) -> list[Path]:
        names = (PlanName.kind, CommitName.kind, PublishedName.kind, "floor")
        kinds = [self.directory / kind for kind in names]
        return [self.directory, *(kind / name for kind in kinds for name in list_names(kind))]


def _sealed(name: EntryName, body: bytes, nonce: str) -> bytes:
    text = str(name).encode()
    crc = _checksum(FORMAT, text, nonce.encode(), body)
    return b"anabranch %d %b %08x %d %b\n%b" % (FORMAT, text, crc, len(body), nonce.encode(), body)


def _checksum(version: int, name: bytes, nonce: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %b %b " % (version, name, nonce)))


def _opened(name: EntryName, data: bytes, path: Path) -> Entry:
    """Check an entry's bytes against its envelope and its name."""
    header = _HEADER.match(data[:_LONGEST_HEADER])
    if header is None:
        _refuse_future(data, path)
        raise _corrupt(name, path, "its first line is damaged")
    version, said, crc, length, nonce = header.groups()
    body = data[header.end() :]
    if _checksum(FORMAT, said, nonce, body) != int(crc, 16):
        _refuse_future(data, path)
        raise _corrupt(name, path, _damage(len(body), int(length)))
    # From here on the content is whole as one of ours, so another number or length is damage.
    if int(version) != FORMAT:
        raise _corrupt(name, path, "its format number is damaged")
    if len(body) != int(length):
        raise _corrupt(name, path, _damage(len(body), int(length)))
    if said != str(name).encode():
        raise _corrupt(name, path, f"it is the entry {said.decode(errors='replace')}")
    return Entry(name, body, nonce.decode())


def _damage(found: int, length: int) -> str:
    if found != length:
        return f"it has {found} bytes instead of {length}"
    return "its checksum does not fit its content"


def _refuse_future(data: bytes, path: Path) -> None:
    found = _FORMAT_ALONE.match(data)
    if found is not None and int(found[1]) > FORMAT:
        raise FutureFormat(
            f"A journal entry has format {int(found[1])}; this version reads up to {FORMAT}",
            where=str(path),
            do="Nothing was changed. Use the version of Anabranch that wrote this directory, or "
            "a newer one.",
        )


def _corrupt(name: EntryName, path: Path, why: str) -> CorruptEntry:
    return CorruptEntry(
        f"The journal entry {name} is damaged: {why}",
        where=str(path),
        do="Nothing was changed. Restore the directory from a copy, or open an older checkpoint.",
    )
