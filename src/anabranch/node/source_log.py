"""The source log in the store: files for what a position must remember."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import StoreUnavailable
from anabranch.store.files import create_file, read_file
from anabranch.store.retention import LOG_ROOM


@dataclass(frozen=True, slots=True)
class StoreLog:
    """A source log in the pipeline's directory."""

    store: Path

    def write(self, name_hint: str, data: bytes) -> str:
        """Create a file durably, under a name of its own."""
        name = f"{name_hint}-{secrets.token_hex(8)}"
        create_file(self.store / LOG_ROOM / name, data, within=self.store)
        return name

    def read(self, name: str) -> bytes:
        """What was written under that name."""
        path = self.store / LOG_ROOM / name
        data = read_file(path)
        if data is None:
            raise StoreUnavailable(
                "A file that a source's position needs is missing",
                where=str(path),
                do="Nothing was changed. Restore the directory from a copy.",
            )
        return data
