"""Pieces: files with some bins of a run, and runs joined from several pieces.

A piece is an Arrow IPC file like a run. Its metadata is that of the whole run (rows, bytes, expiry
and blobs by bin), so merging decides the same from a piece as from the run (R9). Its name has its
size and checksum, by which a torn or damaged file is detected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.records.bins import BinSet
from anabranch.records.run_list import RunInfo
from anabranch.runs.run_file import Run, encode_piece, load_piece
from anabranch.runs.sorted_rows import SortedRows
from anabranch.store.checksums import checksum_of
from anabranch.store.open_files import OpenFileCache

CACHED_PIECES = 1024
"""How many pieces, and runs joined from pieces, a process keeps open."""

_NAME = re.compile(r"(?P<run>.+)\.(?P<checksum>[0-9a-f]{16})-(?P<size>\d+)\.piece")


def run_of_piece(name: str) -> str | None:
    """The run that a file is a piece of; None if the file is not a piece.

    >>> run_of_piece("7-a.arrow.00000000badf00d5-512.piece")
    '7-a.arrow'
    """
    match = _NAME.fullmatch(name)
    return None if match is None else match["run"]


def cut_piece(run: Run, bins: BinSet) -> tuple[str, pa.Buffer]:
    """Cut a piece with the rows of these bins out of a run; return its name and its bytes."""
    data = encode_piece(run, bins)
    return f"{run.info.name}.{checksum_of(data)}-{data.size}.piece", data


def open_pieces(directory: Path, info: RunInfo, names: Sequence[str]) -> Run:
    """Open a run with the rows of these pieces; raises ``CorruptRun`` or ``MissingRun``.

    Runs stay open in the process: the content of a name never changes.
    """
    key = (directory, tuple(sorted(names)))
    cached = _open.get(key)
    if cached is not None:
        return replace(cached, info=info)
    alone = len(key[1]) == 1
    run = _join([_open_piece(directory / name, info, alone=alone) for name in key[1]])
    _open.put(key, run)
    return run


def forget_pieces() -> None:
    """Close all cached pieces, as if the process were new."""
    _open.clear()


def _exist(key: tuple[Path, tuple[str, ...]]) -> bool:
    directory, names = key
    return all(os.path.exists(f"{directory}/{name}") for name in names)


_open: OpenFileCache[tuple[Path, tuple[str, ...]], Run] = OpenFileCache(CACHED_PIECES, _exist)


def _open_piece(path: Path, info: RunInfo, *, alone: bool) -> Run:
    key = (path.parent, (path.name,))
    run = _open.get(key)
    if run is None:
        match = _NAME.fullmatch(path.name)
        assert match is not None, path
        size, checksum = int(match["size"]), match["checksum"]
        run = load_piece(path, info, size, checksum, searched=alone)
        _open.put(key, run)
    return run


def _join(pieces: Sequence[Run]) -> Run:
    """Join the pieces of a run in the order of its bins, without copying."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    owner = np.full(first.bins, -1, dtype=np.int64)
    for place, piece in enumerate(pieces):
        owner[piece.here] = place
    numbers = np.flatnonzero(owner >= 0)
    batches: list[pa.RecordBatch] = []
    # Between two neighbouring bins of one group no other piece has a bin, so no row is lost.
    for group in np.split(numbers, np.flatnonzero(np.diff(owner[numbers])) + 1):
        span = np.zeros(first.bins, dtype=np.bool_)
        span[group[0] : group[-1] + 1] = True
        batches.extend(pieces[owner[group[0]]].select(span))
    rows = SortedRows(first.rows.schema, batches)
    return replace(first, rows=rows, here=owner >= 0)
