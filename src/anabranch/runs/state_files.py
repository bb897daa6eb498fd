"""Where a task reads the files of its state, and how it makes new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from anabranch.records.run_list import RunList
from anabranch.runs.run_file import Run, mapped, open_run
from anabranch.store.files import create_bulk


class StateFiles(Protocol):
    """The runs and blobs of a state. Names are below ``root``, the store, wherever they are read.

    Every way to read gives the same rows: which one is chosen changes no result (R9).
    """

    @property
    def root(self) -> Path:
        """The store: where every file is that a commit names."""
        ...

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Runs, with the rows of at least the bins that they are listed for."""
        ...

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """The bytes of a blob, which are those that were committed."""
        ...

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Make a file in the store, durably, under a name that nobody else can draw."""
        ...


@dataclass(frozen=True, slots=True)
class InStore:
    """Files are read where they are, in the store: mapped, never copied."""

    root: Path

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Map the files."""
        return tuple(open_run(self.root, listed.run) for listed in runs)

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """Map the file."""
        return mapped(self.root / name, size, checksum, "blob")

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Make it durable."""
        create_bulk(path, data, within=self.root)
