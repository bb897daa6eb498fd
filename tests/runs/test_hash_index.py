from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.records.bins import Hashes
from anabranch.runs.hash_index import LARGEST, HashIndex, build_hash_index
from anabranch.runs.keys import Index

TOP = 2**64 - 1
EDGES = st.sampled_from([0, 1, 2, 2**31, 2**32, 2**63 - 1, 2**63, 2**63 + 1, TOP - 1, TOP])
#: Even, crowded at the bottom, crowded in the middle and at the very ends.
HASHES = (
    st.lists(st.integers(0, TOP) | EDGES, max_size=60)
    | st.lists(st.integers(0, 40), max_size=60)
    | st.lists(st.integers(2**63 - 20, 2**63 + 20) | EDGES, max_size=60)
)


def sorted_hashes(numbers: list[int]) -> Hashes:
    return np.array(sorted(numbers), dtype=np.uint64)


def indexed(hashes: Hashes, cuts: list[int]) -> tuple[HashIndex | None, Index]:
    """An index over hashes in parts scattered among other words, and the word of each hash."""
    edges = sorted({0, len(hashes), *(cut % (len(hashes) + 1) for cut in cuts)})
    parts = [hashes[start:stop] for start, stop in pairwise(edges)]
    words, places, at = [np.array([0, TOP], dtype=np.uint64)], [], [np.empty(0, dtype=np.int64)]
    for part in parts:
        places.append(sum(len(piece) for piece in words))
        at.append(np.arange(len(part)) + places[-1])
        words += [part, np.array([TOP, 0, 7], dtype=np.uint64)]
    return build_hash_index(parts, np.concatenate(words), places), np.concatenate(at)


def check(hashes: Hashes, asked: Hashes, cuts: list[int]) -> bool:
    """Compare with a binary search; say whether there was an index at all."""
    index, words = indexed(hashes, cuts)
    if index is None:
        return False
    found, at = index.find(asked)
    places = np.searchsorted(hashes, asked)
    hit = hashes[np.minimum(places, len(hashes) - 1)] == asked
    assert found.tolist() == np.flatnonzero(hit).tolist()
    assert at.tolist() == words[places[hit]].tolist()
    return True


@given(HASHES, HASHES, st.lists(st.integers(0, 1000), max_size=4))
def test_they_lead_to_what_a_binary_search_finds(
    held: list[int], others: list[int], cuts: list[int]
) -> None:
    hashes = sorted_hashes(held)
    check(hashes, np.unique(np.concatenate([hashes[::2], sorted_hashes(others)])), cuts)


@given(st.integers(1, 3000), st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 20))
def test_evenly_spread_hashes_have_them(rows: int, seed: int, drop: int, repeat: int) -> None:
    chance = np.random.default_rng(seed)
    hashes = np.sort(chance.integers(0, TOP, rows, dtype=np.uint64) >> np.uint64(drop))
    hashes[: min(repeat, rows)] = hashes[0]
    asked = np.unique(np.concatenate([hashes[::3], chance.integers(0, TOP, 50, dtype=np.uint64)]))
    assert check(hashes, asked, [])


def test_one_hash_and_none() -> None:
    for only in (0, 1, 2**63, TOP):
        hashes = np.array([only], dtype=np.uint64)
        assert check(hashes, np.array(sorted({0, 5, only, TOP}), dtype=np.uint64), [])
        assert check(hashes, hashes[:0], [])
    assert build_hash_index([], np.empty(0, dtype=np.uint64), []) is None


def test_crowded_hashes_have_none() -> None:
    assert indexed(sorted_hashes([*range(LARGEST + 1), TOP]), [])[0] is None
    assert indexed(sorted_hashes([*range(LARGEST), TOP]), [])[0] is not None


def test_a_group_that_lies_in_two_parts_has_none() -> None:
    hashes = np.array([0, 1, 2, 3, TOP], dtype=np.uint64)
    assert indexed(hashes, [2])[0] is None
    assert indexed(hashes, [4])[0] is not None
