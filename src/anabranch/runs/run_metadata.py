"""The metadata of a run: what its schema says beside the columns.

Numbers by bin are little-endian 64-bit integers, deflated: most bins of a small run are empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from anabranch.records.run_list import FORMAT, BlobInfo
from anabranch.runs.expiry import Histogram
from anabranch.runs.keys import Index

_FORMAT = b"anabranch.format"
_BINS = b"anabranch.bins"
_ROWS = b"anabranch.bin_rows"
_BYTES = b"anabranch.bin_bytes"
_EDGES = b"anabranch.expiry"
_EXPIRY = b"anabranch.bin_expiry"
_BLOBS = b"anabranch.blobs"


@dataclass(frozen=True, slots=True, eq=False)
class RunMetadata:
    """Rows and bytes of each bin and, where rows expire, how many of them do when."""

    bin_rows: Index
    bin_bytes: Index
    expiry: Histogram | None

    def encode(self, blobs: tuple[BlobInfo, ...]) -> dict[bytes, bytes]:
        """As it stands in a file, with the blobs that values are in."""
        found = {
            _FORMAT: str(FORMAT).encode(),
            _BINS: str(len(self.bin_rows)).encode(),
            _ROWS: _packed(self.bin_rows),
            _BYTES: _packed(self.bin_bytes),
        }
        if self.expiry is not None:
            found[_EDGES] = _packed(self.expiry.edges)
            found[_EXPIRY] = _packed(self.expiry.counts)
        if blobs:
            found[_BLOBS] = msgspec.json.encode(blobs)
        return found

    @classmethod
    def decode(cls, told: Mapping[bytes, bytes]) -> RunMetadata:
        """Out of a file. ``KeyError``, ``ValueError`` or ``zlib.error`` where it is no run's."""
        bins = int(told[_BINS])
        rows, size = _unpacked(told[_ROWS]), _unpacked(told[_BYTES])
        if not len(rows) == len(size) == bins:
            raise ValueError(f"it speaks of {len(rows)} bins, not {bins}")
        if _EDGES not in told:
            return cls(rows, size, None)
        edges = _unpacked(told[_EDGES])
        counts = _unpacked(told[_EXPIRY]).reshape(bins, len(edges))
        return cls(rows, size, Histogram(edges, counts))


def format_of(told: Mapping[bytes, bytes]) -> int:
    """The format that a file says it has."""
    return int(told[_FORMAT])


def _packed(numbers: Index) -> bytes:
    return zlib.compress(numbers.astype("<i8").tobytes(), 1)


def _unpacked(data: bytes) -> Index:
    return np.frombuffer(zlib.decompress(data), dtype="<i8").astype(np.int64)
