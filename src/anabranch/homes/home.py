"""Homes: a worker's copies of the state files that it needs, on the machine where it runs.

Operations
    ``HomeFiles`` reads runs and blobs from a home. ``copy_ahead`` brings the files of bins that
    will come, ``complete`` looks at what came and brings the rest, ``sweep`` removes what no
    commit needs for the bins that are to be here.

Guarantees
    A home is never the truth. What is missing or damaged in it is read from the store, counted as
    a *miss* and kept; where that cannot be (a full disk), the store's file is used as it is. So
    a home may be wiped at any time, and two attempts of a task may work in it together. What is
    copied was compared with the checksum that was committed; a copy is compared again when a
    process opens it. Files appear whole, by renaming.

Non-guarantees
    Nothing is synced: after a power cut what is torn is noticed, and copied again. Of a run the
    bins that are needed are copied, as a piece; a piece stays until no bin of its run is needed.
    Of a large run in the store the record batches with these bins are read, which may have some of
    their neighbours too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch.errors import StoreError
from anabranch.homes.fixed_cost import FixedCost
from anabranch.homes.home_directory import HomeDirectory, HomeListing, file_step
from anabranch.homes.pieces import cut_piece, open_pieces
from anabranch.records.bins import BinSet
from anabranch.records.run_list import BlobInfo, Listed, RunInfo, RunList, files, restrict
from anabranch.runs.run_file import Run, mapped, open_part, open_run
from anabranch.store.files import create_bulk

NOTHING = BinSet()


@dataclass(slots=True)
class HomeCounters:
    """Bytes of state by where they came from.

    ``home`` counts the bins asked for of each run that was opened here, ``moved`` what was copied
    for bins that arrive, ``store`` what was read from the store because it was missing here, in
    ``misses`` reads.
    """

    moved: int = 0
    home: int = 0
    store: int = 0
    misses: int = 0


@dataclass(slots=True)
class CopiedAhead:
    """What was copied ahead: the bytes of each bin that is complete now, and the seconds of all.

    What runs cost however little is copied of them is not in it.
    """

    bytes: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0


class HomeFiles:
    """The files of a state as a task of one step reads them: from a home, else from the store."""

    def __init__(self, home: Path, root: Path) -> None:
        """``root`` is the store. Nothing is read yet."""
        self.root = root
        self.counted = HomeCounters()
        self.handling_seconds = 0.0
        self._home = HomeDirectory(home)
        self._rooms: dict[str, HomeListing] = {}

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Runs, from pieces or whole files here; what is missing is fetched."""
        return tuple(self._opened(listed) for listed in runs)

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """A blob, from here or, if it is missing, from the store."""
        with contextlib.suppress(StoreError):
            data = mapped(self._home.path / name, size, checksum, "blob")
            self.counted.home += size
            return data
        data = mapped(self.root / name, size, checksum, "blob")
        self._count(size, moved=False)
        with contextlib.suppress(OSError):
            self._home.put(name, data)
        return data

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Make a file in the store, durably, and keep it here: nobody reads back his own state."""
        create_bulk(path, data, within=self.root)
        with contextlib.suppress(OSError):
            self._home.put(path.relative_to(self.root).as_posix(), data)

    def complete(self, runs: RunList, bins: BinSet, last_step: int) -> None:
        """Look whether bins that have arrived are all here, before they are read.

        What step ``last_step`` has written for them could not be copied ahead: it is moved now.
        Anything else that is missing is a miss.
        """
        fixed_cost = FixedCost()
        for listed in restrict(runs, bins):
            moved = file_step(listed.run.name) >= last_step
            with _timed(fixed_cost.looked):
                missing = self._missing(listed)
            if missing:
                with _timed(fixed_cost.copied):
                    self._copy(listed.run, missing, moved=moved)
            for blob in _blobs(listed):
                if not self._home.has(blob):
                    self._count(blob.bytes, moved=file_step(blob.name) >= last_step)
                    with contextlib.suppress(OSError):
                        self._home.put(blob.name, self._stored(blob))
        self.handling_seconds += fixed_cost.seconds

    def copy_ahead(self, runs: RunList, bins: BinSet, allowance: int | None) -> CopiedAhead:
        """Copy what bins have now and is not here.

        Blobs are copied in parts while bytes are left of the ``allowance``, but at least one part:
        a large one takes several steps. Raises ``StoreError`` for what the store does not have.
        """
        started, before = time.perf_counter(), self.counted.moved
        size, lacking = dict.fromkeys(bins, 0), set[int]()
        fixed_cost, chosen = FixedCost(), restrict(runs, bins)
        for listed in chosen:
            with _timed(fixed_cost.looked):
                missing = self._missing(listed)
            if missing:
                with _timed(fixed_cost.copied):
                    run, _ = self._copy(listed.run, missing, moved=True)
                for number in missing:
                    size[number] += int(run.bin_bytes[number])
        for blob in (blob for listed in chosen for blob in _blobs(listed)):
            if self._home.has(blob):
                continue
            spent = self.counted.moved - before
            if lacking and allowance is not None and spent >= allowance:
                lacking.add(blob.bin)
                continue
            most = blob.bytes if allowance is None else allowance - spent
            with contextlib.suppress(OSError):
                added, whole = self._home.add_part(blob, self._unchecked(blob), most)
                self.counted.moved += added
                size[blob.bin] += added
                if whole:
                    continue
            lacking.add(blob.bin)
        done = {number: each for number, each in size.items() if number not in lacking}
        self.handling_seconds += fixed_cost.seconds
        return CopiedAhead(done, time.perf_counter() - started - fixed_cost.seconds)

    def sweep(self, operator: str, runs: RunList, needed: BinSet, step: int) -> None:
        """Remove an operator's files that no ``needed`` bin needs, as of the last commit.

        Files of ``step`` and later stay: attempts write them now.
        """
        self._home.sweep(f"run/{operator}", files(restrict(runs, needed)), step)

    def remove(self) -> None:
        """Remove the home: its worker has no bins any more."""
        self._home.remove()

    def _opened(self, listed: Listed) -> Run:
        missing = self._missing(listed)
        run = self._fetch(listed.run, missing) if missing else self._held(listed.run)
        assert run is not None
        if run.here is not None or not missing:
            self.counted.home += int(run.bin_bytes[listed.bins.mask(run.bins)].sum())
        return run

    def _missing(self, listed: Listed) -> BinSet:
        """The bins of a run that are not here."""
        run = self._held(listed.run)
        if run is None:
            return listed.bins
        return NOTHING if run.here is None else listed.bins - BinSet.from_mask(run.here)

    def _held(self, info: RunInfo) -> Run | None:
        """What of a run is here: all of it, the bins of some pieces, or nothing."""
        room, _, own = info.name.rpartition("/")
        found = self._found(room)
        if own in found.whole:
            with contextlib.suppress(StoreError):
                return open_run(self._home.path, info)
            self._forget(room, own)
        pieces = self._found(room).pieces.get(own, [])
        while pieces:
            try:
                return open_pieces(self._home.path / room, info, pieces)
            except StoreError as error:
                # The error names the file: the others may be whole.
                self._forget(room, Path(error.where or "").name)
                left = self._found(room).pieces.get(own, [])
                pieces = left if len(left) < len(pieces) else []
        return None

    def _fetch(self, info: RunInfo, bins: BinSet) -> Run:
        """Read bins that are missing; gives what is here then, or the store's run."""
        _, kept = self._copy(info, bins, moved=False)
        return (self._held(info) if kept else None) or open_run(self.root, info)

    def _copy(self, info: RunInfo, bins: BinSet, *, moved: bool) -> tuple[Run, bool]:
        """Copy bins of a run; gives the store's, of which they are, and whether they were kept.

        What was copied is opened, and looked at, by whoever reads it: that may be another process.
        """
        part = open_part(self.root, info, bins)
        name, data = cut_piece(part, bins)
        self._count(data.size, moved=moved)
        try:
            self._home.put(name, data)
        except OSError:
            return part, False
        room, _, own = name.rpartition("/")
        if room in self._rooms:
            self._rooms[room] = self._rooms[room].with_piece(own)
        return part, True

    def _found(self, room: str) -> HomeListing:
        if room not in self._rooms:
            self._rooms[room] = self._home.find(room)
        return self._rooms[room]

    def _forget(self, room: str, name: str) -> None:
        self._home.drop(room, name)
        self._rooms.pop(room, None)

    def _count(self, size: int, *, moved: bool) -> None:
        if moved:
            self.counted.moved += size
        else:
            self.counted.store += size
            self.counted.misses += 1

    def _stored(self, blob: BlobInfo) -> pa.Buffer:
        return mapped(self.root / blob.name, blob.bytes, blob.checksum, "blob")

    def _unchecked(self, blob: BlobInfo) -> pa.Buffer:
        """The store's bytes: their checksum is compared when the last part of them is copied."""
        with pa.memory_map(str(self.root / blob.name)) as file:
            return file.read_buffer()


@contextlib.contextmanager
def _timed(told: Callable[[float], None]) -> Iterator[None]:
    """Tell how long it took."""
    started = time.perf_counter()
    yield
    told(time.perf_counter() - started)


def _blobs(listed: Listed) -> Iterator[BlobInfo]:
    return (blob for blob in listed.run.blobs if blob.bin in listed.bins)
