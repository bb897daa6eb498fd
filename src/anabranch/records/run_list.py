"""Which runs make up an operator's state: each with the bins it still counts for, newest first.

For one bin, its runs are the members of the list that name it, in the order of the list. A bin
that a run holds no rows of is not named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from anabranch.records.bins import BinSet

#: The format of run files that this version writes, and the newest it reads.
FORMAT = 1


class BlobInfo(msgspec.Struct, frozen=True):
    """A file that has the values of one row of a run, and the bin of that row."""

    name: str
    bytes: int
    checksum: str
    bin: int


class Tail(msgspec.Struct, frozen=True):
    """The end of a run's file, which says what its parts are."""

    bytes: int
    checksum: str


class RunInfo(msgspec.Struct, frozen=True):
    """What a commit says about a run: enough to find the file and to know that it is whole.

    ``name`` is the path below the store's root; ``checksum`` is that of the whole file. ``blobs``
    are the files that values of its rows are in. ``tail`` is the end of a file whose parts can be
    read and checked one by one; None where it is read as a whole.
    """

    name: str
    operator: str
    rows: int
    bytes: int
    checksum: str
    format: int = FORMAT
    blobs: tuple[BlobInfo, ...] = ()
    tail: Tail | None = None


class Listed(msgspec.Struct, frozen=True):
    """A run and the bins it counts for."""

    run: RunInfo
    bins: BinSet


RunList: TypeAlias = tuple[Listed, ...]


def runs_of(runs: RunList, number: int) -> tuple[RunInfo, ...]:
    """The runs of one bin, newest first."""
    return tuple(listed.run for listed in runs if number in listed.bins)


def restrict(runs: RunList, bins: BinSet) -> RunList:
    """The same list for these bins only; runs that count for none of them are left out."""
    kept = (Listed(listed.run, listed.bins & bins) for listed in runs)
    return tuple(listed for listed in kept if listed.bins)


def replace(runs: RunList, owned: BinSet, part: RunList) -> RunList:
    """The list after an owner's write: ``part`` is the new list of the bins it owns.

    The bins of others stay as they are, so that the parts of all owners of a step may be put in
    one after the other, in any order. Runs new in ``part`` come first: they are the newest.
    """
    stray = [listed.run.name for listed in part if listed.bins - owned]
    if stray:
        raise ValueError(f"R1: {stray[0]} is listed for bins that its writer does not own")
    theirs = {listed.run.name: listed for listed in part}
    old = {listed.run.name for listed in runs}
    fresh = tuple(listed for listed in part if listed.run.name not in old)
    nothing = BinSet()
    kept = (
        Listed(
            listed.run,
            (listed.bins - owned)
            | (theirs[listed.run.name].bins if listed.run.name in theirs else nothing),
        )
        for listed in runs
    )
    return fresh + tuple(listed for listed in kept if listed.bins)


def replace_all(runs: RunList, parts: Iterable[tuple[BinSet, RunList]]) -> RunList:
    """The list after the writes of all owners of a step."""
    for owned, part in parts:
        runs = replace(runs, owned, part)
    return runs


def files(*lists: RunList) -> frozenset[str]:
    """The names of all files that these lists need: runs, and blobs of the bins they count for."""
    found = set()
    for runs in lists:
        for listed in runs:
            found.add(listed.run.name)
            found.update(blob.name for blob in listed.run.blobs if blob.bin in listed.bins)
    return frozenset(found)
