"""Blocks: the record batches of a large run, each with a checksum of its own.

The checksum of a run is that of the whole file. Whoever needs some of its bins, out of a store
that may be far away, should not have to read all of it to know that those are whole. So a run of
several batches says in its metadata, which stands at the end of the file and has a checksum in the
commit, how many rows each batch has and what its bytes come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import xxhash

from anabranch.records.bins import BinSet, Mask
from anabranch.runs.keys import Index

_ROWS = b"anabranch.block_rows"
_SUMS = b"anabranch.block_checksums"
_DIGEST = 8


def blocks_told(batches: Sequence[pa.RecordBatch]) -> dict[bytes, bytes]:
    """What a run's metadata says of its batches, in the order in which they are written.

    Nothing where there is only one: reading it is reading the run.
    """
    if len(batches) < 2:
        return {}
    rows = np.array([batch.num_rows for batch in batches], dtype="<i8")
    return {_ROWS: rows.tobytes(), _SUMS: b"".join(_digest(batch) for batch in batches)}


def blocks_with(metadata: Mapping[bytes, bytes], bin_rows: Index, bins: BinSet) -> Index:
    """The numbers of the batches that have rows of these bins."""
    chosen = bins.mask(len(bin_rows))
    bin_ends = np.cumsum(bin_rows)
    block_ends = np.cumsum(np.frombuffer(metadata[_ROWS], dtype="<i8"))
    wanted = np.flatnonzero(chosen & (bin_rows > 0))
    return np.unique(np.searchsorted(block_ends, bin_ends[wanted]))


def bins_in(metadata: Mapping[bytes, bytes], bin_rows: Index, blocks: Index) -> Mask:
    """The bins that are in these batches, which have whole bins only; also those without rows."""
    block_ends = np.cumsum(np.frombuffer(metadata[_ROWS], dtype="<i8"))
    block_of = np.searchsorted(block_ends, np.cumsum(bin_rows))
    read = np.zeros(len(block_ends), dtype=np.bool_)
    read[blocks] = True
    found: Mask = read[block_of] | (bin_rows == 0)
    return found


def is_whole(metadata: Mapping[bytes, bytes], number: int, batch: pa.RecordBatch) -> bool:
    """Whether a batch that was read is the one that was written."""
    told = metadata[_SUMS][number * _DIGEST : (number + 1) * _DIGEST]
    return _digest(batch) == told


def _digest(batch: pa.RecordBatch) -> bytes:
    """The checksum of a batch as it stands in a file."""
    return xxhash.xxh3_64_digest(batch.serialize())
