"""The order of rows against a plain sort of tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.order.row_order import RowOrder, concatenate

Row = tuple[int, ...]

numbers = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


def order_of(rows: Sequence[Row], width: int) -> RowOrder:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), width)
    return RowOrder(tuple(table[:, i].copy() for i in range(width)))


def rows_of(order: RowOrder) -> list[Row]:
    return list(zip(*(column.tolist() for column in order.columns), strict=True))


@st.composite
def sequences(draw: st.DrawFn) -> tuple[int, list[Row]]:
    """A few sorted sequences one after the other, overlapping or not: what tasks send."""
    width = draw(st.integers(3, 5))
    rows = draw(st.lists(st.tuples(*[numbers] * width), unique=True, max_size=60))
    if draw(st.booleans()):
        # Slices of the sorted whole, shuffled: the sequences do not overlap.
        rows = sorted(rows)
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    parts = [sorted(part) for part in draw(st.permutations(parts))]
    return width, [row for part in parts for row in part]


@settings(max_examples=200, deadline=None)
@given(sequences())
def test_permutation_sorts_as_python_sorts_tuples(given_rows: tuple[int, list[Row]]) -> None:
    width, rows = given_rows
    places = order_of(rows, width).permutation()
    wanted = sorted(range(len(rows)), key=lambda place: rows[place])
    assert (list(range(len(rows))) if places is None else places.tolist()) == wanted
    assert (places is None) == (wanted == list(range(len(rows))))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=40))
def test_permutation_sorts_rows_in_any_arrangement_and_with_ties(rows: list[Row]) -> None:
    places = order_of(rows, 3).permutation()
    found = rows if places is None else [rows[place] for place in places.tolist()]
    assert found == sorted(rows)
    if places is not None:
        assert sorted(places.tolist()) == list(range(len(rows)))


def test_many_long_sequences_that_do_not_overlap_are_put_in_a_row() -> None:
    parts = [[(0, part, i) for i in range(20)] for part in (3, 0, 2, 1)]
    rows = [row for part in parts for row in part]
    places = order_of(rows, 3).permutation()
    assert places is not None
    assert [rows[place] for place in places.tolist()] == sorted(rows)


def test_sequences_that_overlap_in_one_row_only_are_sorted_in_full() -> None:
    rows = [(0, 0, i) for i in range(100, 200)] + [(0, 0, i) for i in [*range(40), 150]]
    places = order_of(rows, 3).permutation()
    assert places is not None
    assert [rows[place] for place in places.tolist()] == sorted(rows)


@given(sequences(), st.data())
@settings(max_examples=60, deadline=None)
def test_children_sort_by_their_parents_and_then_by_their_digit(
    given_rows: tuple[int, list[Row]], data: st.DataObject
) -> None:
    width, rows = given_rows
    outputs = [data.draw(st.integers(0, 3)) for _ in rows]
    parents = [place for place, count in enumerate(outputs) for _ in range(count)]
    digits = [digit for count in outputs for digit in range(count)]
    child = order_of(rows, width).child(
        np.array(parents, dtype=np.int64), np.array(digits, dtype=np.int64)
    )
    wanted = [(*rows[p], d) for p, d in zip(parents, digits, strict=True)]
    assert rows_of(child) == wanted
    places = child.permutation()
    if places is not None:
        assert [wanted[place] for place in places.tolist()] == sorted(wanted)


@given(sequences(), st.data())
@settings(max_examples=60, deadline=None)
def test_smallest_is_the_least_row_of_each_segment(
    given_rows: tuple[int, list[Row]], data: st.DataObject
) -> None:
    width, rows = given_rows
    segments: dict[int, list[int]] = {}
    for place in range(len(rows)):
        segments.setdefault(data.draw(st.integers(0, 4)), []).append(place)
    order = [place for number in sorted(segments) for place in segments[number]]
    lengths = [len(segments[number]) for number in sorted(segments)]
    starts = np.cumsum([0, *lengths])[: len(lengths)].astype(np.int64)
    smallest = order_of(rows, width).smallest(np.array(order, dtype=np.int64), starts)
    assert rows_of(smallest) == [min(rows[p] for p in segments[n]) for n in sorted(segments)]


def test_an_order_without_rows_stands_in_order() -> None:
    nothing = order_of([], 4)
    none = np.empty(0, dtype=np.int64)
    assert len(nothing) == 0
    assert nothing.permutation() is None
    assert rows_of(nothing.smallest(none, none)) == []
    assert len(nothing.child(none, none).columns) == 5


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_concatenate_puts_batches_one_after_the_other(cut: int) -> None:
    rows = [(1, 2, 3), (0, 5, 5), (9, 9, 9)]
    joined = concatenate([order_of(rows[:cut], 3), order_of(rows[cut:], 3)])
    assert rows_of(joined) == rows
    assert rows_of(joined.take(np.array([2, 0]))) == [rows[2], rows[0]]
