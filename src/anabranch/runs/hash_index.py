"""Signposts: where hashes stand among ascending ones, known but for a few rows without a search.

Hashes are spread evenly, so that their leading bits tell nearly where they stand. Tables by these
bits have, for each group of hashes, how many there are, where they begin, and which eighths of the
group any of them is in. Most hashes that are not there meet an empty eighth and are done. The
others read one or two places of the rows, all of them at the same time, where a binary search reads
twenty, each after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.records.bins import Hashes
from anabranch.runs.keys import Index

Places = npt.NDArray[np.int32] | npt.NDArray[np.int64]

#: A group has no more rows than this: counts take a byte.
LARGEST = 255
#: A group has eight parts, so many bits below those that number it.
_PARTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Signposts:
    """The tables of one sequence of ascending hashes, which lie in parts among ``words``.

    Group *g* has the hashes whose bits above ``shift`` are those of the first hash plus *g*:
    ``counts[g]`` of them, one after the other from ``words[begins[g]]`` on. Bit *k* of ``sieve[g]``
    says whether any is in its *k*-th part. There are one to two hashes to a group on average.
    """

    words: Hashes
    first: np.uint64
    last: np.uint64
    shift: int
    sieve: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.uint8]
    begins: Places

    def find(self, hashes: Hashes) -> tuple[Index, Index]:
        """Which of these ascending hashes occur, and at which word each does first."""
        start = int(np.searchsorted(hashes, self.first))
        stop = int(np.searchsorted(hashes, self.last, side="right"))
        part = _parts_of_groups(hashes[start:stop], self.shift, self.first)
        bits = self.sieve.take(part >> _PARTS)
        bits >>= (part & (1 << _PARTS) - 1).astype(np.uint8)
        bits &= 1
        some = np.flatnonzero(bits.view(np.bool_))
        group = part[some] >> _PARTS
        some += start
        at = self.begins.take(group).astype(np.int64)
        wanted = hashes[some]
        self._halve(wanted, at, self.counts.take(group))
        met = np.flatnonzero(self.words.take(at) == wanted)
        return some[met], at[met]

    def _halve(self, wanted: Hashes, at: Index, counts: npt.NDArray[np.uint8]) -> None:
        """Move ``at``, in place, to the first word of the group that is not less than wanted.

        It stays at the last word if all are less.
        """
        several = np.flatnonzero(counts > 1)
        wanted, low, left = wanted[several], at[several], counts[several].astype(np.int64)
        for _ in range((int(left.max(initial=1)) - 1).bit_length()):
            # Where only one is left, half is none, and what is read does not matter.
            half = left >> 1
            low += half * (self.words.take(low + half - 1) < wanted)
            left -= half
        at[several] = low


def make_signposts(
    parts: Sequence[Hashes], words: Hashes, places: Sequence[int]
) -> Signposts | None:
    """Signposts to ``parts``, which are not empty and begin at these places of ``words``.

    None where hashes are spread too unevenly for them, or are so few that a group would lie in two
    parts. Whole bins and hashes as they should be never are, but for tiny sequences.
    """
    if not parts:
        return None
    first, last = parts[0][0], parts[-1][-1]
    rows = sum(len(part) for part in parts)
    span = int(last) - int(first)
    shift = max(span.bit_length() - rows.bit_length() + 1, _PARTS)
    size = (int(last) >> shift) - (int(first) >> shift) + 1
    sieve = np.zeros(size, dtype=np.uint8)
    counts = np.zeros(size, dtype=np.uint8)
    small = len(words) <= np.iinfo(np.int32).max
    begins: Places = np.zeros(size, np.int32) if small else np.zeros(size, np.int64)
    free = 0
    for part, place in zip(parts, places, strict=True):
        numbers = _parts_of_groups(part, shift, first)
        low = int(numbers[0]) >> _PARTS
        numbers -= low << _PARTS
        found = np.bincount(numbers >> _PARTS)
        if low < free or found.max() > LARGEST:
            return None
        free = low + len(found)
        counts[low:free] = found
        begins[low] = place
        begins[low + 1 : free] = np.cumsum(found[:-1]) + place
        held = np.zeros(len(found) << _PARTS, dtype=np.bool_)
        held[numbers] = True
        sieve[low:free] = np.packbits(held, bitorder="little")
    return Signposts(words, first, last, shift, sieve, counts, begins)


def _parts_of_groups(hashes: Hashes, shift: int, first: np.uint64) -> Index:
    """Eight times the group of each hash, none of which is less than the first, plus its part."""
    numbers = hashes >> np.uint64(shift - _PARTS)
    numbers -= np.uint64(int(first) >> shift << _PARTS)
    return numbers.view(np.int64)
