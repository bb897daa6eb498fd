"""Counts and hashes by bin, against a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.messages import Tally
from anabranch.operators import tally as module
from anabranch.operators.rows import Rows
from anabranch.operators.tally import digest, row_hashes, tally


def rows_of(pairs: list[tuple[int, int]]) -> Rows:
    hashes = np.array([pair[0] for pair in pairs], dtype=np.uint64)
    return Rows(pa.table({"v": pa.array([pair[1] for pair in pairs], pa.int64())}), hashes)


def model(pairs: list[tuple[int, int]], bins: int) -> dict[int, tuple[int, int]]:
    """Rows and hash of each bin, one row at a time."""
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for key, value in pairs:
        number = key * bins >> 64
        alone = row_hashes(pa.table({"v": [value]}), np.array([key], dtype=np.uint64))
        found[number][0] += 1
        found[number][1] = (found[number][1] + int(alone[0])) % 2**64
    return {number: (count, value) for number, (count, value) in found.items()}


def as_dict(counted: Tally) -> dict[int, tuple[int, int]]:
    assert list(counted.bins) == sorted(counted.bins)
    triples = zip(counted.bins, counted.rows, counted.hashes, strict=True)
    return {number: (count, value) for number, count, value in triples}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(-5, 5)), max_size=40),
    st.sampled_from([1, 2, 16, 256]),
)
def test_every_bin_has_the_rows_and_the_hash_that_a_dictionary_has(
    pairs: list[tuple[int, int]], bins: int
) -> None:
    counted = tally("edge 1-2", rows_of(pairs), bins)
    assert counted.place == "edge 1-2"
    assert as_dict(counted) == model(pairs, bins)


def test_rows_without_a_key_are_one_entry() -> None:
    table = pa.table({"v": [1, 2, 3]})
    assert tally("sink out", Rows(table), 256) == Tally(
        "sink out", (0,), (3,), (digest(row_hashes(table)),)
    )


@pytest.mark.parametrize("rows", [Rows(pa.table({"v": pa.array([], pa.int64())})), rows_of([])])
def test_no_rows_count_as_none(rows: Rows) -> None:
    counted = tally("p", rows, 4)
    assert sum(counted.rows) == 0
    assert sum(counted.hashes) == 0


def test_rows_without_columns_are_counted() -> None:
    table = pa.table({"_": pa.nulls(3)})
    hashes = np.array([0, 0, 2**63], dtype=np.uint64)
    counted = tally("p", Rows(table, hashes), 2)
    assert (counted.bins, counted.rows) == ((0, 1), (2, 1))


def test_sums_do_not_round_when_there_are_many_rows_in_a_bin() -> None:
    largest = np.full(5000, 2**64 - 1, dtype=np.uint64)
    numbers = np.zeros(5000, dtype=np.int64)
    assert module._sums(numbers, largest, 2) == [(2**64 - 1) * 5000 % 2**64, 0]
