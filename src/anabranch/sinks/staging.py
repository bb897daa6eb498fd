"""Staged files: written by tasks before the commit, checked and read by publishers after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anabranch.errors import CorruptStaged
from anabranch.protocol.sinks import Sink
from anabranch.records.staged_file import StagedFile
from anabranch.store.checksums import checksum_of, has_checksum
from anabranch.store.disk import disk
from anabranch.store.files import create_bulk_many, map_file, store_errors


@dataclass(frozen=True, slots=True)
class RowsToStage:
    """Rows for one sink, and the name of the staged file that is to hold them.

    The name is relative to the store and must be one that no other attempt can draw.
    """

    name: str
    sink_name: str
    sink: Sink
    table: pa.Table


def stage(store: Path, rows: Sequence[RowsToStage]) -> tuple[StagedFile, ...]:
    """Write what one task has for its sinks, durably; one staged file each, in the same order.

    Each file and each directory is synced once. Rows for no file (an empty table) should be left
    out by the caller: an empty file costs as much as a small one.
    """
    encoded = [(each, each.sink.encode(each.table)) for each in rows]
    create_bulk_many([(store / each.name, data) for each, data in encoded], within=store)
    return tuple(
        StagedFile(
            name=each.name,
            sink=each.sink_name,
            rows=each.table.num_rows,
            bytes=len(memoryview(data)),
            checksum=checksum_of(data),
        )
        for each, data in encoded
    )


def read_staged(store: Path, file: StagedFile) -> pa.Buffer:
    """Map a staged file; ``CorruptStaged`` if it is missing or not what was committed."""
    path = f"{store}/{file.name}"
    with store_errors(path, "read"):
        try:
            disk().before_read(path)
            size = os.stat(path).st_size
            data = map_file(path, size)
        except FileNotFoundError as error:
            raise _corrupt(path, file, "is missing") from error
    if size != file.bytes:
        raise _corrupt(path, file, f"has {size} bytes instead of {file.bytes}")
    if not has_checksum(data, file.checksum):
        raise _corrupt(path, file, "has another content than the one that was committed")
    return data


def _corrupt(path: str, file: StagedFile, why: str) -> CorruptStaged:
    return CorruptStaged(
        f"A staged file of sink {file.sink!r} {why}",
        where=path,
        do="Its step is committed but was not published, and nothing was changed. Restore this "
        "file from a copy of the directory and start again, or open an older checkpoint.",
    )
