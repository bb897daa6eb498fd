"""The metadata of a run, kept in its Arrow schema.

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

FORMAT_KEY = b"anabranch.format"
_BINS = b"anabranch.bins"
_ROWS = b"anabranch.bin_rows"
_BYTES = b"anabranch.bin_bytes"
_EDGES = b"anabranch.expiry"
_EXPIRY = b"anabranch.bin_expiry"
_BLOBS = b"anabranch.blobs"


@dataclass(frozen=True, slots=True, eq=False)
class RunMetadata:
    """The rows and bytes of each bin and, if rows expire, how many of them expire when."""

    bin_rows: Index
    bin_bytes: Index
    expiry: Histogram | None

    def encode(self, blobs: tuple[BlobInfo, ...]) -> dict[bytes, bytes]:
        """Encode it for a file, along with the run's blobs."""
        encoded = {
            FORMAT_KEY: str(FORMAT).encode(),
            _BINS: str(len(self.bin_rows)).encode(),
            _ROWS: _pack(self.bin_rows),
            _BYTES: _pack(self.bin_bytes),
        }
        if self.expiry is not None:
            encoded[_EDGES] = _pack(self.expiry.edges)
            encoded[_EXPIRY] = _pack(self.expiry.counts)
        if blobs:
            encoded[_BLOBS] = msgspec.json.encode(blobs)
        return encoded

    @classmethod
    def decode(cls, encoded: Mapping[bytes, bytes]) -> RunMetadata:
        """Decode a run's metadata; other data is ``KeyError``, ``ValueError`` or ``zlib.error``."""
        bins = int(encoded[_BINS])
        rows, size = _unpack(encoded[_ROWS]), _unpack(encoded[_BYTES])
        if not len(rows) == len(size) == bins:
            raise ValueError(f"its metadata has {len(rows)} bins, not {bins}")
        if _EDGES not in encoded:
            return cls(rows, size, None)
        edges = _unpack(encoded[_EDGES])
        counts = _unpack(encoded[_EXPIRY]).reshape(bins, len(edges))
        return cls(rows, size, Histogram(edges, counts))


def _pack(numbers: Index) -> bytes:
    return zlib.compress(numbers.astype("<i8").tobytes(), 1)


def _unpack(data: bytes) -> Index:
    return np.frombuffer(zlib.decompress(data), dtype="<i8").astype(np.int64)
