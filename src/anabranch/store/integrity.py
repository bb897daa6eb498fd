"""Verifying the files of a state: existence and size, or every byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import CorruptRun, MissingRun
from anabranch.records.placed import OperatorState
from anabranch.store.checksums import has_checksum
from anabranch.store.files import bytes_of_file, store_errors

_RESTORE = "Open an older checkpoint and replay, or restore the file from a copy of the store."


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that must exist, with its size and checksum if they are known."""

    name: str
    bytes: int | None = None
    checksum: str | None = None


def state_files(
    states: Iterable[OperatorState], others: Iterable[str] = ()
) -> tuple[NeededFile, ...]:
    """The files of states, and others by name, without duplicates, sorted by name."""
    found = {file.name: file for state in states for file in _files(state)}
    found |= {name: NeededFile(name) for name in others}
    return tuple(found[name] for name in sorted(found))


def check_files(store: Path, files: Sequence[NeededFile], *, whole: bool) -> None:
    """Raise ``MissingRun`` or ``CorruptRun`` for the first bad file; ``whole`` reads every byte."""
    for file in files:
        _check(f"{store}/{file.name}", file, whole=whole)


def _files(state: OperatorState) -> Iterator[NeededFile]:
    for listed in state.runs:
        run = listed.run
        yield NeededFile(run.name, run.bytes, run.checksum)
        for blob in run.blobs:
            if blob.bin in listed.bins:
                yield NeededFile(blob.name, blob.bytes, blob.checksum)


def _check(path: str, file: NeededFile, *, whole: bool) -> None:
    with store_errors(path, "read"):
        try:
            size = os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingRun(
                "A file that a commit names is not in the store", where=path, do=_RESTORE
            ) from error
        if file.bytes is not None and size != file.bytes:
            raise _corrupt(path, f"it has {size} bytes instead of {file.bytes}")
        checksum = file.checksum if whole else None
        if checksum is not None and not has_checksum(bytes_of_file(path), checksum):
            raise _corrupt(path, f"its checksum is not {checksum}")


def _corrupt(path: str, why: str) -> CorruptRun:
    return CorruptRun(f"A file is not the one that was committed: {why}", where=path, do=_RESTORE)
