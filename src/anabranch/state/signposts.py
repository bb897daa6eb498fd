"""Signposts: where hashes stand among ascending ones, known but for a few rows without a search.

Hashes are spread evenly, so that their leading bits tell nearly where they stand. Two tables by
these bits have, for each group of hashes, how many there are and where they begin. Most hashes that
are not there meet an empty group and are done; the others read one or two places of the rows, all
of them at the same time, where a binary search reads twenty, each after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.state.bins import Hashes, Mask
from anabranch.state.keys import Index

Places = npt.NDArray[np.int32] | npt.NDArray[np.int64]

#: A group with more rows than this would be searched too slowly.
LARGEST = 32


@dataclass(frozen=True, slots=True, eq=False)
class Signposts:
    """The tables of one sequence of ascending hashes, which lie in parts among ``words``.

    Group *g* has the hashes whose leading bits are ``base + g``: ``counts[g]`` of them, one after
    the other from ``words[begins[g]]`` on. There are one to two hashes to a group on average.
    """

    words: Hashes
    first: np.uint64
    last: np.uint64
    shift: np.uint64
    counts: npt.NDArray[np.uint8]
    begins: Places

    def find(self, hashes: Hashes) -> tuple[Index, Index]:
        """Which of these ascending hashes occur, and at which word each does first."""
        start = int(np.searchsorted(hashes, self.first))
        stop = int(np.searchsorted(hashes, self.last, side="right"))
        group = _groups(hashes[start:stop], self.shift, self.first)
        held = self.counts.take(group)
        some = np.flatnonzero(held != 0)
        group, left = group[some], held[some]
        some += start
        at = self.begins.take(group).astype(np.int64)
        met = self._walk(hashes[some], at, left)
        return some[met], at[met]

    def _walk(self, wanted: Hashes, at: Index, left: npt.NDArray[np.uint8]) -> Index:
        """Move ``at`` forward until the hash is met or passed or the group ends; who met theirs."""
        here = self.words.take(at)
        hit: Mask = here == wanted
        on = np.flatnonzero((here < wanted) & (left > 1))
        ahead, wanted, left = at[on], wanted[on], left[on]
        while len(on):
            ahead += 1
            left -= 1
            here = self.words.take(ahead)
            met = here == wanted
            hit[on[met]] = True
            at[on[met]] = ahead[met]
            more = (here < wanted) & (left > 1)
            on, ahead, wanted, left = on[more], ahead[more], wanted[more], left[more]
        return np.flatnonzero(hit)


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
    shift = np.uint64(max(span.bit_length() - rows.bit_length(), 0))
    size = int((last >> shift) - (first >> shift)) + 1
    counts = np.zeros(size, dtype=np.uint8)
    small = len(words) <= np.iinfo(np.int32).max
    begins: Places = np.zeros(size, np.int32) if small else np.zeros(size, np.int64)
    free = 0
    for part, place in zip(parts, places, strict=True):
        numbers = _groups(part, shift, first)
        low = int(numbers[0])
        found = np.bincount(numbers - low)
        if low < free or found.max() > LARGEST:
            return None
        free = low + len(found)
        counts[low:free] = found
        begins[low] = place
        begins[low + 1 : free] = np.cumsum(found[:-1]) + place
    return Signposts(words, first, last, shift, counts, begins)


def _groups(hashes: Hashes, shift: np.uint64, first: np.uint64) -> Index:
    """The group of each hash, none of which is less than the first."""
    numbers = hashes >> shift
    numbers -= first >> shift
    return numbers.view(np.int64)
