"""Staged files: output that waits for its commit."""

from __future__ import annotations

import msgspec


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of output rows in the store; it counts once a commit names it."""

    #: path relative to the store
    name: str
    #: name of the sink operator
    sink: str
    rows: int
    bytes: int
    #: of the whole file, see ``store/checksums.py``
    checksum: str
