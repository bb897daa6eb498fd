"""Pieces: some bins of a run in a file of their own, and runs that lie in several of them.

A piece is an Arrow IPC file like a run. What it says of rows, bytes, expiry and blobs by bin is
what the whole run says, so that merging decides the same from a piece as from the run (R9). Its
name has its size and checksum: a file that is torn or damaged is known by it.
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
from anabranch.store.open_files import KeptOpen

KEPT = 1024
"""How many pieces, and runs made of them, a process keeps open."""

_NAME = re.compile(r"(?P<run>.+)\.(?P<checksum>[0-9a-f]{16})-(?P<size>\d+)\.piece")


def run_of_piece(name: str) -> str | None:
    """The name of the run that a file is a piece of; None if it is none.

    >>> run_of_piece("7-a.arrow.00000000badf00d5-512.piece")
    '7-a.arrow'
    """
    found = _NAME.fullmatch(name)
    return None if found is None else found["run"]


def cut_piece(run: Run, bins: BinSet) -> tuple[str, pa.Buffer]:
    """A piece with the rows of these bins: its name beside the run, and its bytes."""
    data = encode_piece(run, bins)
    return f"{run.info.name}.{checksum_of(data)}-{data.size}.piece", data


def open_pieces(directory: Path, info: RunInfo, names: Sequence[str]) -> Run:
    """A run with the rows that these pieces have; ``CorruptRun``, ``MissingRun``.

    Runs are kept open for the process: a name never changes its content.
    """
    key = (directory, tuple(sorted(names)))
    found = _open.get(key)
    if found is not None:
        return replace(found, info=info)
    alone = len(key[1]) == 1
    run = _joined([_piece(directory / name, info, alone=alone) for name in key[1]])
    _open.keep(key, run)
    return run


def forget_pieces() -> None:
    """Let go of all open pieces, as a new process would."""
    _open.clear()


def _is_there(key: tuple[Path, tuple[str, ...]]) -> bool:
    directory, names = key
    return all(os.path.exists(f"{directory}/{name}") for name in names)


_open: KeptOpen[tuple[Path, tuple[str, ...]], Run] = KeptOpen(KEPT, _is_there)


def _piece(path: Path, info: RunInfo, *, alone: bool) -> Run:
    key = (path.parent, (path.name,))
    run = _open.get(key)
    if run is None:
        found = _NAME.fullmatch(path.name)
        assert found is not None, path
        size, checksum = int(found["size"]), found["checksum"]
        run = load_piece(path, info, size, checksum, searched=alone)
        _open.keep(key, run)
    return run


def _joined(pieces: Sequence[Run]) -> Run:
    """The pieces of a run as one, in the order of its bins; nothing is copied."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    owner = np.full(first.bins, -1, dtype=np.int64)
    for place, piece in enumerate(pieces):
        owner[piece.here] = place
    numbers = np.flatnonzero(owner >= 0)
    batches: list[pa.RecordBatch] = []
    # Bins between those of one piece are in no other: the rows in between are none.
    for group in np.split(numbers, np.flatnonzero(np.diff(owner[numbers])) + 1):
        span = np.zeros(first.bins, dtype=np.bool_)
        span[group[0] : group[-1] + 1] = True
        batches.extend(pieces[owner[group[0]]].select(span))
    rows = SortedRows(first.rows.schema, batches)
    return replace(first, rows=rows, here=owner >= 0)
