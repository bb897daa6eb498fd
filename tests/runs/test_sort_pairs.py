"""Sorting by two numbers, against NumPy's own sort by several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runs.sort_pairs import sort_pairs

SMALL, LARGE = st.integers(-3, 3), st.integers(-(2**62), 2**62)


@given(st.lists(st.tuples(SMALL | LARGE, SMALL | LARGE), max_size=30))
def test_the_order_is_that_of_both_numbers(pairs: list[tuple[int, int]]) -> None:
    major, minor = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert sort_pairs(major, minor).tolist() == np.lexsort((minor, major)).tolist()


@pytest.mark.parametrize("bits", [3, 30, 55, 62])
def test_however_many_bits_the_numbers_have(bits: int) -> None:
    """With few bits all fits into one word, then only the numbers do, then not even these."""
    generator = np.random.default_rng(bits)
    major = generator.integers(0, 300, 5_000)
    minor = generator.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 5_000) // 7 * 7
    assert sort_pairs(major, minor).tolist() == np.lexsort((minor, major)).tolist()
