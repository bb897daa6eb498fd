"""Counts and hashes of the rows that pass a place, per bin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anabranch.messages import Tally
from anabranch.operators.digest import digest, row_hashes
from anabranch.operators.rows import Rows
from anabranch.records.bins import bin_of

UInt64s = npt.NDArray[np.uint64]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_WRAP = 1 << 64


def tally(place: str, rows: Rows, bins: int) -> Tally:
    """Count rows and add up their hashes, per bin if they have a key."""
    if rows.hashes is not None and not len(rows):
        return Tally(place, (), (), ())
    hashes = row_hashes(rows.values, rows.hashes)
    if rows.hashes is None:
        return Tally(place, (0,), (len(rows),), (digest(hashes),))
    numbers = bin_of(rows.hashes, bins)
    counts = np.bincount(numbers, minlength=bins)
    used = np.flatnonzero(counts)
    sums = _sums(numbers, hashes, bins)
    return Tally(
        place,
        tuple(used.tolist()),
        tuple(counts[used].tolist()),
        tuple(sums[int(number)] for number in used),
    )


def _sums(numbers: npt.NDArray[np.int64], hashes: UInt64s, bins: int) -> list[int]:
    """The sum of the hashes per bin, modulo 2^64.

    It adds 32-bit halves: a double adds two million of them without rounding.
    """
    totals = [0] * bins
    for start in range(0, len(hashes), 1 << 20):
        some, part = numbers[start : start + (1 << 20)], hashes[start : start + (1 << 20)]
        low = np.bincount(some, (part & _LOW).astype(np.float64), bins)
        high = np.bincount(some, (part >> _HALF).astype(np.float64), bins)
        for number in np.flatnonzero(np.bincount(some, minlength=bins)).tolist():
            more = int(low[number]) + (int(high[number]) << 32)
            totals[number] = (totals[number] + more) % _WRAP
    return totals
