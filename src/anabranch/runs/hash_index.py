"""An index over ascending hashes that finds a hash in one or two reads.

Hashes are evenly distributed, so their leading bits nearly give their position. Tables indexed by
these bits have, for each group of hashes, its size, its start, and which eighths of the group are
occupied. Most absent hashes fall into an empty eighth and are done. The others read one or two
positions, all at the same time, where a binary search would read twenty in sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.records.bins import Hashes
from anabranch.runs.keys import Index

Places = npt.NDArray[np.int32] | npt.NDArray[np.int64]

#: The most rows in a group: counts take a byte.
LARGEST = 255
#: The number of bits that choose one of the eight parts of a group.
_PARTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class HashIndex:
    """The index tables of one ascending sequence of hashes, which lie in parts in ``words``.

    Group *g* has the hashes whose bits above ``shift`` are those of the first hash plus *g*:
    ``counts[g]`` of them, contiguous from ``words[begins[g]]``. Bit *k* of ``sieve[g]`` says
    whether its *k*-th part is occupied. A group has one to two hashes on average.
    """

    words: Hashes
    first: np.uint64
    last: np.uint64
    shift: int
    sieve: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.uint8]
    begins: Places

    def find(self, hashes: Hashes) -> tuple[Index, Index]:
        """Find ascending hashes: which of them occur, and the first word of each."""
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
        self._bisect(wanted, at, self.counts.take(group))
        hits = np.flatnonzero(self.words.take(at) == wanted)
        return some[hits], at[hits]

    def _bisect(self, wanted: Hashes, at: Index, counts: npt.NDArray[np.uint8]) -> None:
        """Move ``at``, in place, to the group's first word not less than wanted, else its last."""
        several = np.flatnonzero(counts > 1)
        wanted, low, left = wanted[several], at[several], counts[several].astype(np.int64)
        for _ in range((int(left.max(initial=1)) - 1).bit_length()):
            # With one word left, half is 0 and the word that is read does not matter.
            half = left >> 1
            low += half * (self.words.take(low + half - 1) < wanted)
            left -= half
        at[several] = low


def build_hash_index(
    parts: Sequence[Hashes], words: Hashes, places: Sequence[int]
) -> HashIndex | None:
    """Index ``parts``, which are not empty and begin at these places of ``words``.

    Returns None if the hashes are too uneven, or so few that a group would lie in two parts. With
    whole bins and proper hashes that happens only for tiny sequences.
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
    return HashIndex(words, first, last, shift, sieve, counts, begins)


def _parts_of_groups(hashes: Hashes, shift: int, first: np.uint64) -> Index:
    """Eight times the group of each hash plus its part; no hash is less than the first."""
    numbers = hashes >> np.uint64(shift - _PARTS)
    numbers -= np.uint64(int(first) >> shift << _PARTS)
    return numbers.view(np.int64)
