"""Run lists: the runs of an operator's state, newest first, each with the bins it counts for.

The runs of a bin are those that list it, in order. A run does not list bins it has no rows of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from anabranch.records.bin_set import BinSet

#: The format of run files that this version writes, and the newest that it reads.
FORMAT = 1


class BlobInfo(msgspec.Struct, frozen=True):
    """A file with the values of one row of a run, and the bin of that row."""

    name: str
    bytes: int
    checksum: str
    bin: int


class Tail(msgspec.Struct, frozen=True):
    """The end of a run's file, which describes its parts."""

    bytes: int
    checksum: str


class RunInfo(msgspec.Struct, frozen=True):
    """What a commit says about a run: enough to find and verify the file.

    ``name`` is relative to the store, ``checksum`` that of the whole file. ``blobs`` are the files
    of large values. ``tail`` is the end of a file whose parts can be read and verified one by one;
    None if the file is read as a whole.
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
    """The list for these bins only, without runs that count for none of them."""
    kept = (Listed(listed.run, listed.bins & bins) for listed in runs)
    return tuple(listed for listed in kept if listed.bins)


def replace(runs: RunList, owned: BinSet, part: RunList) -> RunList:
    """The list after an owner's write, where ``part`` is the new list of its bins.

    Other bins stay unchanged, so the parts of a step's owners may be applied in any order. New runs
    in ``part`` come first: they are the newest.
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
    """The names of all files that these lists need: runs, and blobs in the bins they list."""
    found = set()
    for runs in lists:
        for listed in runs:
            found.add(listed.run.name)
            found.update(blob.name for blob in listed.run.blobs if blob.bin in listed.bins)
    return frozenset(found)
