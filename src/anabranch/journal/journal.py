"""The journal: plans, commits, checkpoints and the like, one exclusively created entry each.

A body is bytes that the caller understands; the journal only keeps it, with a *nonce* by which a
creator recognises its own entry. Where entries are kept is behind ``port``: the journal names them,
seals them and trims them.

Guarantees
    The first creator of a name wins, whoever it is, and everybody else is given the winner's
    entry. A creator that lost sight of its own success (a retry after an error) is told that it
    won. What ``create`` answers, and what ``latest_commit`` and ``latest_plan`` find, survives a
    power cut. A name is never used twice: whoever creates an entry that was trimmed away is told
    so. Listing costs what is kept, not what ever was; what was removed is summed up in a
    ``Segment``. With a ``fence``, nothing is created or trimmed once another leader has taken
    over: that is ``Fenced``.

Non-guarantees
    Trimmed entries may be back after a power cut, until the next ``trim``. A segment forgets what
    a damaged entry would have told.

Failure and recovery
    An entry says its own name, length and checksum (see ``envelope``). One that is truncated,
    flipped or under a wrong name is ``CorruptEntry``; one of a newer format is ``FutureFormat``.
    Reading changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from anabranch.errors import CorruptEntry, FutureFormat, MissingEntry, StoreUnavailable
from anabranch.journal.entry_lists import EntryLists
from anabranch.journal.entry_names import (
    BranchName,
    CheckpointName,
    CommitName,
    EntryName,
    IdentityName,
    LeaderName,
    PlanName,
    SegmentName,
    StepName,
)
from anabranch.journal.envelope import Entry, seal, unseal
from anabranch.journal.port import EntryWriter, Lease
from anabranch.journal.segments import Segment, decode_segment, encode_segment, fold


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
Name = TypeVar("Name", CommitName, PlanName)


class Fence(Protocol):
    """Whoever may create entries as long as its lease stands, which may end at any moment."""

    def lease(self) -> Lease:
        """Give the lease, which may have ended; ``Fenced`` if there never was one."""
        ...

    def check(self) -> None:
        """Raise ``Fenced`` if the lease has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Journal(EntryLists):
    """The journal in a directory.

    The directory must exist (whoever leads makes it); if it vanishes while a pipeline runs,
    creating an entry fails instead of starting an empty journal. Without a ``fence`` anybody may
    create.
    """

    fence: Fence | None = None

    def create(self, name: EntryName, body: bytes, nonce: str) -> Outcome:
        """Create an entry, once and durably; see ``Outcome`` for the three answers.

        The nonce must be drawn anew for every entry a caller means to create and kept over its
        retries.
        """
        if not self._put(name, seal(name, body, nonce)):
            return self._taken(name, nonce)
        # Only now, with the name in place, the floor decides: trimming writes the segment before
        # it frees any name, so a name that was free because it had been trimmed shows up here.
        floor = self._floor_above(name)
        if floor is None:
            return Won()
        # Another leader may have trimmed meanwhile, and kept this entry: then it is not removed.
        self._remove(name)
        return Trimmed(floor)

    def read(self, name: EntryName) -> Entry:
        """Give an entry, or raise ``MissingEntry``, ``CorruptEntry`` or ``FutureFormat``."""
        entry = self.find(name)
        if entry is None:
            raise self.missing(name)
        return entry

    def missing(self, name: EntryName) -> MissingEntry:
        """Give the error of an entry that must be there."""
        return MissingEntry(
            f"The journal has no entry {name}",
            where=self.where(name),
            do="Nothing was changed. Restore the directory from a copy, or open an older "
            "checkpoint.",
        )

    def identity(self) -> Entry | None:
        """Give the entry that says whose journal this is; ``None`` in a new journal.

        ``MissingEntry`` if there are other entries than those of leaders, which come before it:
        they would get a new identity, and be taken for those of another pipeline.
        """
        entry = self.find(IdentityName())
        if entry is None and (self.branches() or self.lines()):
            raise MissingEntry(
                "The journal has entries, but its identity is missing",
                where=self.where(IdentityName()),
                do="Nothing was changed. Restore this file from a copy of the directory. If this "
                "is itself a copy, it was not finished: copy again to another directory.",
            )
        return entry

    def find(self, name: EntryName) -> Entry | None:
        """Give an entry, ``None`` if there is none; damage raises as in ``read``."""
        data = self.directory.read(str(name))
        return None if data is None else unseal(name, data, self.where(name))

    def latest_commit(self, branch: int = 0) -> CommitName | None:
        """Give the name of the newest commit, after making sure that it is durable."""
        return self._newest(self.commits(branch))

    def latest_plan(self, step: int, branch: int = 0) -> PlanName | None:
        """Give the highest revision of a step's plan, after making sure that it is durable."""
        return self._newest([name for name in self.plans(branch) if name.step == step])

    def _newest(self, names: Sequence[Name]) -> Name | None:
        if not names:
            return None
        self.settle(names[-1])
        return names[-1]

    def settle(self, name: EntryName) -> None:
        """Make an entry durable whose creator may have been killed before it did."""
        self.directory.settle(str(name).rpartition("/")[0])

    def segment(self, branch: int = 0) -> Segment:
        """Give the sum of all steps below the floor: of the newest segment that is whole."""
        for name in reversed(self.segments(branch)):
            with contextlib.suppress(CorruptEntry, msgspec.DecodeError):
                entry = self.find(name)
                if entry is not None:
                    return decode_segment(entry.body)
        return Segment()

    def trim(
        self,
        below: int,
        *,
        keep: Collection[int] = (),
        branch: int = 0,
        checkpoints: Collection[int] | None = None,
    ) -> tuple[StepName, ...]:
        """Remove the entries of the steps below ``below``, but for those to keep.

        Gives the names that were removed. Kept steps stay until a trim that does not keep them.
        Of the checkpoints all but those of ``checkpoints`` go, wherever they are; None: none go.
        """
        floor = self.floor(branch) or 0
        if floor < below:
            self._raise_floor(floor, below, branch)
        old = [name for name in self.listed(branch) if name.step < below and name.step not in keep]
        gone: list[CheckpointName] = []
        if checkpoints is not None:
            gone = [name for name in self.checkpoints(branch) if name.step not in checkpoints]
        for name in (*old, *gone):
            self._remove(name)
        if gone:
            # Their files go next: a checkpoint that came back would be one without them.
            self.settle(gone[0])
        return (*old, *gone)

    def _put(self, name: EntryName, sealed: bytes) -> bool:
        with self._writer() as writer:
            return writer.create(str(name), sealed)

    def _remove(self, name: EntryName) -> None:
        with self._writer() as writer:
            writer.remove(str(name))

    @contextlib.contextmanager
    def _writer(self) -> Iterator[EntryWriter]:
        if self.fence is None:
            yield self.directory
            return
        try:
            yield self.fence.lease()
        except StoreUnavailable:
            self.fence.check()
            raise

    def _raise_floor(self, last: int, floor: int, branch: int) -> None:
        # A step is counted when the floor passes it, whether it stays for a while or not, so
        # that none is counted twice: not after a crash in the middle of a trim either.
        passed = [name for name in self.commits(branch) if last <= name.step < floor]
        body = encode_segment(fold(self.segment(branch), map(self._folded, passed)))
        name = SegmentName(floor, branch)
        # If the name is taken, another process has raised it to the same step.
        self._put(name, seal(name, body, "segment"))
        # The one before stays: a listing that runs meanwhile may miss a name that is just being
        # added, and must then still see a floor.
        for old in self.segments(branch)[:-2]:
            self._remove(old)

    def _folded(self, name: CommitName) -> tuple[int, bytes | None]:
        try:
            entry = self.find(name)
        except (CorruptEntry, FutureFormat):
            entry = None
        return name.step, None if entry is None else entry.body

    def _taken(self, name: EntryName, nonce: str) -> Outcome:
        # Its creator may have been killed before it synced the name; the answer must hold.
        self.settle(name)
        entry = self.find(name)
        if entry is None:  # removed since, which only trimming does
            if (floor := self._floor_above(name)) is not None:
                return Trimmed(floor)
            entry = self.read(name)
        return Won() if entry.nonce == nonce else Taken(entry)

    def _floor_above(self, name: EntryName) -> int | None:
        if isinstance(name, IdentityName | LeaderName | BranchName | SegmentName):
            return None
        floor = self.floor(name.branch)
        return floor if floor is not None and name.step < floor else None
