"""State as a Parquet file: what one operator kept after one step."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from anabranch.records.bins import BinSet
from anabranch.store.files import store_errors
from anabranch.task.state_reader import Snapshot, read_view


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    operator: str
    step: int
    rows: int
    bytes: int


def export_parquet(snapshot: Snapshot, operator: str, store: Path, output: Path) -> Exported:
    """Write an operator's state, a few bins at a time, with the columns that queries show.

    The file appears whole or not at all; one that is there already is ``NameTaken``.
    """
    view = snapshot.view(operator)
    aside = output.with_name(f".{output.name}.{os.getpid()}.part")
    rows = 0
    with store_errors(output, "write the export"):
        if output.exists():
            raise FileExistsError(output)
        try:
            with pq.ParquetWriter(aside, view.schema()) as writer:
                for batch in read_view(view, store, BinSet.every(view.bins)):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            # Links, unlike renames, never replace a file that has come in between.
            os.link(aside, output)
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
        return Exported(operator, snapshot.step, rows, output.stat().st_size)
