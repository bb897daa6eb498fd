"""Bins: equal slices of the 64-bit hash space. Each hash is in one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.records.bin_set import BinSet, bin_bits

__all__ = [
    "HASH_BITS",
    "BinNumbers",
    "BinSet",
    "Hashes",
    "Mask",
    "bin_bits",
    "bin_of",
    "bin_offsets",
    "check_hashes",
    "to_hashes",
]

Hashes = npt.NDArray[np.uint64]
BinNumbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

HASH_BITS = 64


def to_hashes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """View a column of 64-bit hashes as unsigned numbers: only their order is bin order.

    Spark's ``xxhash64`` is signed; its bits are reinterpreted.
    """
    if column.type not in (pa.int64(), pa.uint64()) or column.null_count:
        raise TypeError(f"hashes are 64-bit integers without NULLs, not {column.type}")
    return column.to_numpy().view(np.uint64)  # type: ignore[no-any-return]


def check_hashes(hashes: Hashes) -> None:
    """Reject signed hashes, which have another order."""
    if hashes.dtype != np.uint64:
        raise TypeError(f"hashes are unsigned 64-bit numbers, not {hashes.dtype}")


def bin_of(hashes: Hashes, bins: int) -> BinNumbers:
    """The bin of each hash: its top bits, so that hash order is bin order."""
    bits = bin_bits(bins)
    if bits == 0:
        # A shift by the full width is undefined in C.
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(HASH_BITS - bits)).astype(np.int64)


def bin_offsets(hashes: Hashes, bins: int) -> BinNumbers:
    """The start of each bin in ascending hashes, then their number: ``bins + 1`` offsets."""
    width = HASH_BITS - bin_bits(bins)
    first = np.arange(1, bins, dtype=np.uint64) << np.uint64(min(width, HASH_BITS - 1))
    inner = np.searchsorted(hashes, first)
    return np.concatenate(([0], inner, [len(hashes)])).astype(np.int64)
