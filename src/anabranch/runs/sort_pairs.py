"""Sorting by two numbers at once, as one."""

from __future__ import annotations

import numpy as np

from anabranch.runs.keys import Index

_BITS = 63


def sort_pairs(major: Index, minor: Index) -> Index:
    """The stable order by two numbers.

    Sorting plain numbers is several times faster than sorting an index. So if both numbers and the
    place fit into one word, that is sorted; else an index by a word of both, if they fit.

    >>> sort_pairs(np.array([1, 0, 1, 0]), np.array([5, 9, 4, 9])).tolist()
    [1, 3, 2, 0]
    """
    if not len(major):
        return np.empty(0, dtype=np.int64)
    first, low = int(major.min()), int(minor.min())
    minor_bits = (int(minor.max()) - low).bit_length()
    bits = (int(major.max()) - first).bit_length() + minor_bits
    if bits > _BITS:
        return np.lexsort((minor, major)).astype(np.int64, copy=False)
    words = ((major - first) << minor_bits) | (minor - low)
    place_bits = (len(words) - 1).bit_length()
    if bits + place_bits > _BITS:
        return np.argsort(words, kind="stable")
    words <<= place_bits
    words |= np.arange(len(words))
    words.sort()
    order: Index = words & ((1 << place_bits) - 1)
    return order
