"""Blocks: the record batches of a large run, each with a checksum of its own.

A run's checksum covers the whole file. A reader that needs a few bins, from a store that may be far
away, should not have to read the whole file to verify them. So the metadata of a run with several
batches has the rows and the checksum of each batch. The metadata is at the end of the file, and
the commit has its checksum.
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


def block_metadata(batches: Sequence[pa.RecordBatch]) -> dict[bytes, bytes]:
    """The metadata of a run's batches, in the order they are written; empty for a single batch."""
    if len(batches) < 2:
        return {}
    rows = np.array([batch.num_rows for batch in batches], dtype="<i8")
    return {_ROWS: rows.tobytes(), _SUMS: b"".join(_digest(batch) for batch in batches)}


def blocks_of_bins(metadata: Mapping[bytes, bytes], bin_rows: Index, bins: BinSet) -> Index:
    """The numbers of the batches that have rows of these bins."""
    chosen = bins.mask(len(bin_rows))
    bin_ends = np.cumsum(bin_rows)
    block_ends = np.cumsum(np.frombuffer(metadata[_ROWS], dtype="<i8"))
    wanted = np.flatnonzero(chosen & (bin_rows > 0))
    return np.unique(np.searchsorted(block_ends, bin_ends[wanted]))


def bins_of_blocks(metadata: Mapping[bytes, bytes], bin_rows: Index, blocks: Index) -> Mask:
    """The bins that lie in these batches, and all bins without rows; a bin is never split."""
    block_ends = np.cumsum(np.frombuffer(metadata[_ROWS], dtype="<i8"))
    block_of = np.searchsorted(block_ends, np.cumsum(bin_rows))
    read = np.zeros(len(block_ends), dtype=np.bool_)
    read[blocks] = True
    bins: Mask = read[block_of] | (bin_rows == 0)
    return bins


def is_whole(metadata: Mapping[bytes, bytes], number: int, batch: pa.RecordBatch) -> bool:
    """Whether a batch that was read is the one that was written."""
    return _digest(batch) == metadata[_SUMS][number * _DIGEST : (number + 1) * _DIGEST]


def _digest(batch: pa.RecordBatch) -> bytes:
    """The checksum of a batch in the form in which it is written."""
    return xxhash.xxh3_64_digest(batch.serialize())
