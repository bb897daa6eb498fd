from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.records.bins import BinSet, bin_of, bin_offsets, to_hashes

TOP = 2**64 - 1
HASH = st.integers(0, TOP)
NUMBERS = st.sets(st.integers(0, 255))


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


def test_a_bin_is_the_top_bits_of_the_hash() -> None:
    some = hashes(0, 2**56 - 1, 2**56, 2**63, TOP)
    assert bin_of(some, 256).tolist() == [0, 0, 1, 128, 255]
    assert bin_of(some, 2).tolist() == [0, 0, 0, 1, 1]
    assert bin_of(some, 1).tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("bins", [0, -4, 3, 255])
def test_the_number_of_bins_is_a_power_of_two(bins: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        bin_of(hashes(1), bins)


@given(st.lists(HASH), st.sampled_from([1, 2, 16, 256, 4096]))
def test_bin_offsets_cut_sorted_hashes_into_bins(drawn: list[int], bins: int) -> None:
    ascending = hashes(*sorted(drawn))
    offsets = bin_offsets(ascending, bins)
    assert len(offsets) == bins + 1
    width = 2**64 // bins
    expected = [sorted(h for h in drawn if h // width == number) for number in range(bins)]
    parts = [ascending[start:stop].tolist() for start, stop in pairwise(offsets)]
    assert parts == expected


def test_spark_hashes_are_taken_as_unsigned() -> None:
    signed = pa.chunked_array([pa.array([-1, 0]), pa.array([-(2**63) + 1])])
    assert to_hashes(signed).tolist() == [TOP, 0, 2**63 + 1]
    assert to_hashes(pa.array([5], pa.uint64())).dtype == np.uint64


@pytest.mark.parametrize(
    "column", [pa.array([1, None]), pa.array([1], pa.int32()), pa.array([1.0])]
)
def test_other_columns_are_no_hashes(column: pa.Array) -> None:
    with pytest.raises(TypeError, match="64-bit"):
        to_hashes(column)


@given(NUMBERS, NUMBERS)
def test_a_bin_set_is_a_set(left: set[int], right: set[int]) -> None:
    a, b = BinSet.of(left), BinSet.of(right)
    assert list(a | b) == sorted(left | right)
    assert list(a & b) == sorted(left & right)
    assert list(a - b) == sorted(left - right)
    assert len(a) == len(left)
    assert bool(a) == bool(left)
    assert [n for n in range(300) if n in a] == sorted(left)
    assert (a == b) == (left == right)
    assert hash(a) == hash(BinSet.of(sorted(left)))


@given(NUMBERS)
def test_a_bin_set_becomes_a_mask_and_a_text_and_comes_back(numbers: set[int]) -> None:
    chosen = BinSet.of(numbers)
    mask = chosen.mask(256)
    assert mask.tolist() == [number in numbers for number in range(256)]
    assert BinSet.from_mask(mask) == chosen
    assert int(chosen.hex, 16) == sum(2**number for number in numbers)
    assert msgspec.json.decode(msgspec.json.encode(chosen), type=BinSet) == chosen


def test_every_bin() -> None:
    assert list(BinSet.every(4)) == [0, 1, 2, 3]
    assert BinSet.every(1).mask(1).tolist() == [True]


def test_a_mask_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="bin 4 of only 4"):
        BinSet.of([4]).mask(4)


@pytest.mark.parametrize("text", ["", "FF", "0f", "-1", "xyz", "1_0"])
def test_only_the_canonical_text_is_read(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"hex": text}), type=BinSet)
