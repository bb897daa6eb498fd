"""Rows in the order of their own columns: against Python's sort, whatever order they came in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.order_by import OrderColumn
from anabranch.operators.order.order_by import Ordering
from anabranch.operators.rows import Rows
from tests.operators.keyed_rows import make_rows

KEY = pa.schema([("k", pa.string())])
ROW = pa.schema([("n", pa.int32()), ("f", pa.float64()), ("xs", pa.list_(pa.float32()))])
numbers = st.none() | st.integers(-2, 2)
floats = st.none() | st.sampled_from([-1.5, 0.0, 2.0, math.inf])
lists = st.none() | st.lists(st.sampled_from([0.5, 1.0]), max_size=2)
given_rows = st.lists(st.tuples(st.sampled_from("ab"), numbers, floats, lists), max_size=12)


def rows_of(rows: list[tuple[Any, ...]], order: list[int] | None = None) -> Rows:
    columns = [pa.array([row[i + 1] for row in rows], ROW.field(i).type) for i in range(3)]
    return make_rows([row[:1] for row in rows], KEY, pa.table(columns, schema=ROW), order=order)


def sorted_rows(rows: Rows) -> list[tuple[Any, ...]]:
    assert rows.order is not None
    places = rows.order.permutation()
    values = rows.values if places is None else rows.values.take(pa.array(places))
    keys = rows.keys if places is None or rows.keys is None else rows.keys.take(pa.array(places))
    assert keys is not None
    columns = [*keys.columns, *values.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def rank(value: Any, *, descending: bool) -> tuple[bool, Any]:
    """NULL before everything, either way."""
    return value is not None, 0 if value is None else -value if descending else value


@given(given_rows, st.booleans(), st.booleans())
def test_rows_with_an_order_keep_it_where_the_columns_are_equal(
    rows: list[tuple[Any, ...]], one: bool, other: bool
) -> None:
    ordering = Ordering((OrderColumn("f", one), OrderColumn("n", other)), keeps_order=True)
    made = ordering.apply(rows_of(rows, list(range(len(rows)))))
    wanted = sorted(
        rows, key=lambda row: (rank(row[2], descending=one), rank(row[1], descending=other))
    )
    assert sorted_rows(made) == wanted
    assert made.order is not None
    assert len(made.order.columns) == 3 + ordering.digits(0)


@given(given_rows, st.randoms(use_true_random=False))
def test_without_one_the_order_depends_on_the_rows_alone(
    rows: list[tuple[Any, ...]], random: Any
) -> None:
    ordering = Ordering((OrderColumn("n"),), keeps_order=False)
    made = ordering.apply(rows_of(rows))
    shuffled = random.sample(rows, len(rows))
    again = ordering.apply(rows_of(shuffled))
    assert sorted_rows(made) == sorted_rows(again)
    assert [row[1] for row in sorted_rows(made)] == sorted(
        (row[1] for row in rows), key=lambda n: rank(n, descending=False)
    )
    assert made.order is not None
    assert len(made.order.columns) == 3 + ordering.digits(7)
    # No two rows are at the same place, and a part of the rows has the places of the whole.
    places = np.stack(made.order.columns, axis=1).tolist()
    assert len({tuple(place) for place in places}) == len(rows)
    half = ordering.apply(rows_of([row for row in rows if row[0] == "a"]))
    assert half.order is not None
    mine = sorted(place for place, row in zip(places, rows, strict=True) if row[0] == "a")
    assert sorted(np.stack(half.order.columns, axis=1).tolist()) == mine


@pytest.mark.parametrize("keeps_order", [True, False])
def test_no_rows(keeps_order: bool) -> None:
    made = Ordering((OrderColumn("n"),), keeps_order).apply(rows_of([], []))
    assert made.order is not None
    assert len(made.order) == 0


def test_rows_keep_their_times_and_marks() -> None:
    rows = rows_of([("a", 2, 0.0, None), ("a", 1, 0.0, None)], [0, 1])
    times, fired = np.array([7, 9]), np.array([True, False])
    ordering = Ordering((OrderColumn("n", False),), keeps_order=True)
    made = ordering.apply(replace(rows, times=times, fired=fired))
    assert made.times is times
    assert made.fired is fired


def test_undone_rows_have_the_order_that_they_had() -> None:
    """Late rows leave an operator as they came, whatever order it wanted."""
    rows = rows_of([("a", 2, 0.0, None), ("b", 1, None, None)], [4, 7])
    ordering = Ordering((OrderColumn("n"), OrderColumn("f")), keeps_order=True)
    undone = ordering.undo(ordering.apply(rows))
    assert undone.order is not None
    assert rows.order is not None
    assert [c.tolist() for c in undone.order.columns] == [c.tolist() for c in rows.order.columns]
    unknown = Ordering((OrderColumn("n"),), keeps_order=False)
    assert unknown.undo(unknown.apply(rows_of([("a", 2, 0.0, None)]))).order is None
