"""A home: a cache of the state files that a worker needs, on the machine where it runs.

Guarantees
    A home is only a cache. Missing or damaged files are read from the store, counted as *misses*
    and cached; if they cannot be cached (a full disk), the store's files are used directly. So a
    home may be wiped at any time, and two attempts of a task may share it. Data is compared with
    its committed checksum when it is copied, and again when a process opens the copy. Files appear
    whole, by renaming.

Non-guarantees
    Nothing is synced: after a power cut, torn files are detected and copied again. Only the needed
    bins of a run are copied, as a piece; a piece stays until no bin of its run is needed. Reading
    bins of a large run reads whole record batches, which may include neighbouring bins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch.errors import StoreError
from anabranch.homes.fixed_cost import FixedCost
from anabranch.homes.home_directory import HomeDirectory, HomeListing
from anabranch.homes.pieces import cut_piece, open_pieces
from anabranch.records.bins import BinSet
from anabranch.records.run_list import BlobInfo, Listed, RunInfo, RunList, files, restrict
from anabranch.runs.run_file import Run, map_verified, open_part, open_run
from anabranch.store.files import create_bulk, map_file
from anabranch.store.retention import file_step

NOTHING = BinSet()


@dataclass(slots=True)
class HomeCounters:
    """Bytes of state by where they came from.

    ``home`` is bytes of bins opened from the home, ``moved`` bytes copied for bins that arrive,
    ``store`` bytes read from the store in ``misses`` cache misses.
    """

    moved: int = 0
    home: int = 0
    store: int = 0
    misses: int = 0


@dataclass(slots=True)
class CopiedAhead:
    """The bytes of each bin that ``copy_ahead`` completed, and its seconds without fixed costs."""

    bytes: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0


class HomeFiles:
    """The state files of one task in one step, read from a home, else from the store."""

    def __init__(self, home: Path, root: Path) -> None:
        """Cache the files of the store ``root`` in the directory ``home``."""
        self.root = root
        self.counters = HomeCounters()
        self.handling_seconds = 0.0
        self._home = HomeDirectory(home)
        self._rooms: dict[str, HomeListing] = {}

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Open runs from pieces or whole files in the home; fetch missing bins from the store."""
        return tuple(self._open(listed) for listed in runs)

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """Read a blob from the home or, if it is missing there, from the store."""
        with contextlib.suppress(StoreError):
            data = map_verified(self._home.path / name, size, checksum, "blob")
            self.counters.home += size
            return data
        data = map_verified(self.root / name, size, checksum, "blob")
        self._count(size, moved=False)
        with contextlib.suppress(OSError):
            self._home.put(name, data)
        return data

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Create a durable file in the store and cache it, so its writer need not fetch it."""
        create_bulk(path, data, within=self.root)
        with contextlib.suppress(OSError):
            self._home.put(path.relative_to(self.root).as_posix(), data)

    def complete(self, runs: RunList, bins: BinSet, last_step: int) -> None:
        """Copy what is missing of bins that have arrived, before they are read.

        What step ``last_step`` wrote for them could not be copied ahead, so it counts as moved.
        Anything else that is missing counts as a miss.
        """
        fixed_cost = FixedCost()
        for listed in restrict(runs, bins):
            moved = file_step(listed.run.name) >= last_step
            self._copy_missing(listed, fixed_cost, moved=moved)
            for blob in _blobs(listed):
                if not self._home.has(blob):
                    self._count(blob.bytes, moved=file_step(blob.name) >= last_step)
                    data = map_verified(self.root / blob.name, blob.bytes, blob.checksum, "blob")
                    with contextlib.suppress(OSError):
                        self._home.put(blob.name, data)
        self.handling_seconds += fixed_cost.seconds

    def copy_ahead(self, runs: RunList, bins: BinSet, allowance: int | None) -> CopiedAhead:
        """Copy the current files of bins that will arrive, as far as the home lacks them.

        Blobs are copied in parts, at least one, until ``allowance`` bytes are used up: a large blob
        takes several steps. Raises ``StoreError`` if the store lacks a file.
        """
        started, before = time.perf_counter(), self.counters.moved
        size, lacking = dict.fromkeys(bins, 0), set[int]()
        fixed_cost, chosen = FixedCost(), restrict(runs, bins)
        for listed in chosen:
            for number, copied in self._copy_missing(listed, fixed_cost, moved=True).items():
                size[number] += copied
        for blob in (blob for listed in chosen for blob in _blobs(listed)):
            if self._home.has(blob):
                continue
            spent = self.counters.moved - before
            if lacking and allowance is not None and spent >= allowance:
                lacking.add(blob.bin)
                continue
            most = blob.bytes if allowance is None else allowance - spent
            with contextlib.suppress(OSError):
                # ``add_part`` compares the checksum when it copies the last part.
                data = map_file(self.root / blob.name, blob.bytes)
                added, whole = self._home.add_part(blob, data, most)
                self.counters.moved += added
                size[blob.bin] += added
                if whole:
                    continue
            lacking.add(blob.bin)
        done = {number: each for number, each in size.items() if number not in lacking}
        self.handling_seconds += fixed_cost.seconds
        return CopiedAhead(done, time.perf_counter() - started - fixed_cost.seconds)

    def sweep(self, operator: str, runs: RunList, needed: BinSet, step: int) -> None:
        """Remove an operator's files that the ``needed`` bins did not use at the last commit.

        Files of ``step`` and later stay: attempts are writing them.
        """
        self._home.sweep(f"run/{operator}", files(restrict(runs, needed)), step)

    def remove(self) -> None:
        """Remove the home, once its worker has no bins."""
        self._home.remove()

    def _copy_missing(
        self, listed: Listed, fixed_cost: FixedCost, *, moved: bool
    ) -> dict[int, int]:
        """Copy the bins of a run that the home lacks; return the bytes of each."""
        with fixed_cost.check():
            missing = self._missing(listed)
        if not missing:
            return {}
        with fixed_cost.copy():
            run, _ = self._copy(listed.run, missing, moved=moved)
        return {number: int(run.bin_bytes[number]) for number in missing}

    def _open(self, listed: Listed) -> Run:
        missing = self._missing(listed)
        run = self._fetch(listed.run, missing) if missing else self._open_cached(listed.run)
        assert run is not None
        if run.here is not None or not missing:
            self.counters.home += int(run.bin_bytes[listed.bins.mask(run.bins)].sum())
        return run

    def _missing(self, listed: Listed) -> BinSet:
        """The bins of a run that the home lacks."""
        run = self._open_cached(listed.run)
        if run is None:
            return listed.bins
        return NOTHING if run.here is None else listed.bins - BinSet.from_mask(run.here)

    def _open_cached(self, info: RunInfo) -> Run | None:
        """What the home has of a run: all of it, the bins of some pieces, or None."""
        room, _, own = info.name.rpartition("/")
        if own in self._listing(room).whole:
            with contextlib.suppress(StoreError):
                return open_run(self._home.path, info)
            self._drop(room, own)
        pieces = self._listing(room).pieces.get(own, [])
        while pieces:
            try:
                return open_pieces(self._home.path / room, info, pieces)
            except StoreError as error:
                # The error names the damaged file; the others may be whole.
                self._drop(room, Path(error.where or "").name)
                left = self._listing(room).pieces.get(own, [])
                pieces = left if len(left) < len(pieces) else []
        return None

    def _fetch(self, info: RunInfo, bins: BinSet) -> Run:
        """Copy missing bins; return the cached run, or the store's if it cannot be cached."""
        _, cached = self._copy(info, bins, moved=False)
        return (self._open_cached(info) if cached else None) or open_run(self.root, info)

    def _copy(self, info: RunInfo, bins: BinSet, *, moved: bool) -> tuple[Run, bool]:
        """Copy bins of a run; return the store's run and whether the copy was cached.

        The copy is verified when it is opened, possibly by another process.
        """
        part = open_part(self.root, info, bins)
        name, data = cut_piece(part, bins)
        self._count(data.size, moved=moved)
        try:
            self._home.put(name, data)
        except OSError:
            return part, False
        room, _, own = name.rpartition("/")
        pieces = self._listing(room).pieces.setdefault(info.name.rpartition("/")[2], [])
        if own not in pieces:
            pieces.append(own)
        return part, True

    def _listing(self, room: str) -> HomeListing:
        if room not in self._rooms:
            self._rooms[room] = self._home.listing(room)
        return self._rooms[room]

    def _drop(self, room: str, name: str) -> None:
        self._home.drop(room, name)
        self._rooms.pop(room, None)

    def _count(self, size: int, *, moved: bool) -> None:
        if moved:
            self.counters.moved += size
        else:
            self.counters.store += size
            self.counters.misses += 1


def _blobs(listed: Listed) -> Iterator[BlobInfo]:
    return (blob for blob in listed.run.blobs if blob.bin in listed.bins)
