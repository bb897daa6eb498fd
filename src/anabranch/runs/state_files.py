"""How a task reads the files of its state and creates new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from anabranch.records.run_list import RunList
from anabranch.runs.run_file import Run, map_verified, open_run
from anabranch.store.files import create_bulk


class StateFiles(Protocol):
    """Access to the runs and blobs of a state, named by their paths below the store ``root``.

    Every implementation reads the same rows: the choice changes no result (R9).
    """

    @property
    def root(self) -> Path:
        """The store, which has every file that a commit names."""
        ...

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Open runs with at least the rows of the bins they are listed for."""
        ...

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """Read the bytes of a blob and verify that they are the committed ones."""
        ...

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Create a durable file in the store, under a name unique to its writer."""
        ...


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """State files read directly from the store: mapped, never copied."""

    root: Path

    def open(self, runs: RunList) -> tuple[Run, ...]:
        """Map the files."""
        return tuple(open_run(self.root, listed.run) for listed in runs)

    def blob(self, name: str, size: int, checksum: str) -> pa.Buffer:
        """Map the file."""
        return map_verified(self.root / name, size, checksum, "blob")

    def create(self, path: Path, data: pa.Buffer) -> None:
        """Create the file durably."""
        create_bulk(path, data, within=self.root)
