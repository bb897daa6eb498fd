"""The hash of a set of rows: blind to how the rows are spread, and to nothing else."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anabranch.operators.tally import digest, row_hashes
from tests.operators.columns import EPOCH, EXACT, NTZ, STRUCT, UTC, column, structs

LIST = pa.list_(pa.int32())
MAP = pa.map_(pa.string(), pa.int64())
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **EXACT,
    STRUCT: structs,
    LIST: st.lists(st.none() | st.integers(-3, 3), max_size=3),
    MAP: st.dictionaries(st.text(max_size=2), st.integers(-3, 3), max_size=2).map(
        lambda some: list(some.items())
    ),
}

small = settings(max_examples=150, deadline=None)


def hash_of(table: pa.Table) -> int:
    return digest(row_hashes(table))


def one(kind: pa.DataType, value: Any) -> pa.Table:
    return pa.table({"x": pa.array([value], type=kind)})


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 12))
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    columns = [draw(column(KINDS[kind], kind, size)) for kind in kinds]
    return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])


@small
@given(tables(), st.data())
def test_rows_have_one_digest_in_any_order_chunking_and_slicing(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = table.num_rows
    shuffled = table.take(pa.array(data.draw(st.permutations(range(rows))), type=pa.int64()))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=3)))
    pieces = [
        # Slices of a larger table: their buffers begin before their first row.
        pa.concat_tables([table, shuffled]).combine_chunks().slice(rows + a, b - a)
        for a, b in zip([0, *cuts], [*cuts, rows], strict=True)
    ]
    assert hash_of(pa.concat_tables(pieces)) == hash_of(table)
    assert sum(map(hash_of, pieces)) % 2**64 == hash_of(table)


@small
@given(st.sampled_from(list(KINDS)), st.data())
def test_a_single_changed_value_changes_the_digest(kind: pa.DataType, data: st.DataObject) -> None:
    before, after = data.draw(st.none() | KINDS[kind]), data.draw(st.none() | KINDS[kind])
    assume(before != after)
    others = data.draw(column(KINDS[kind], kind, 3))
    left = pa.concat_tables([one(kind, before), pa.table({"x": others})])
    right = pa.concat_tables([one(kind, after), pa.table({"x": others})])
    assert hash_of(left) != hash_of(right)


DIFFERENT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [None, 0, 1, -1]),
    (pa.int64(), [None, 0, 1, 2**32, -(2**63)]),
    (pa.bool_(), [None, False, True]),
    (pa.string(), [None, "", "0", "NULL", "a", "a\0", "\0a"]),
    (pa.string(), ["same front 12 same back", "same front 21 same back"]),
    (pa.string(), ["x" * 300 + "12" + "x" * 300, "x" * 300 + "21" + "x" * 300, "x" * 602]),
    (pa.string(), ["x" * 256, "x" * 257, "x" * 255 + "y"]),
    (pa.binary(), [None, b"", b"\0", b"\0\0"]),
    (pa.date32(), [None, dt.date(1970, 1, 1), dt.date(1970, 1, 2)]),
    (NTZ, [None, EPOCH, EPOCH + dt.timedelta(microseconds=1)]),
    (UTC, [None, EPOCH, EPOCH + dt.timedelta(seconds=1)]),
    (pa.decimal128(38, 2), [None, Decimal("0.00"), Decimal("0.01"), Decimal("-0.01")]),
    (STRUCT, [None, {"a": None, "b": None}, {"a": 0, "b": None}, {"a": 0, "b": ""}]),
    (LIST, [None, [], [None], [0], [0, 0], [1, 0], [0, 1]]),
    (MAP, [None, [], [("a", 1)], [("a", None)]]),
]


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=lambda case: str(case)[:20])
def test_values_that_look_alike_are_told_apart(kind: pa.DataType, values: list[Any]) -> None:
    assert len({hash_of(one(kind, value)) for value in values}) == len(values)


def test_a_value_in_another_column_or_beside_another_value_is_another_row() -> None:
    def rows(a: list[int], b: list[int]) -> int:
        return hash_of(pa.table({"a": a, "b": b}))

    assert len({rows([1], [0]), rows([0], [1]), rows([1, 0], [0, 1]), rows([1, 0], [1, 0])}) == 4


def test_the_seed_counts() -> None:
    table = pa.table({"x": [1, 2]})
    seed = np.array([7, 8], dtype=np.uint64)
    assert digest(row_hashes(table, seed)) != hash_of(table)
    assert digest(row_hashes(table, seed)) != digest(row_hashes(table, seed[::-1].copy()))
    assert seed.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        (pa.float64(), 1.0, None),
        (pa.float32(), 1.0, float("nan")),
        (pa.struct([("n", pa.int8()), ("x", pa.float64())]), {"n": 1, "x": 1.0}, {"n": 1, "x": 2}),
        (pa.list_(pa.float64()), [1.0, 2.0], [1.0, 3.0]),
        (pa.null(), None, None),
    ],
    ids=str,
)
def test_floating_numbers_do_not_count_wherever_they_stand(
    kind: pa.DataType, left: Any, right: Any
) -> None:
    assert hash_of(one(kind, left)) == hash_of(one(kind, right))


@pytest.mark.parametrize("kind", [*KINDS, pa.float64()], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_columns_without_any_value_have_a_digest(kind: pa.DataType, rows: int) -> None:
    table = pa.table({"x": pa.nulls(rows, kind)})
    assert len(row_hashes(table)) == rows
    assert (hash_of(table) == 0) == (rows == 0 or kind == pa.float64())
    chunks = pa.chunked_array([], type=kind)
    assert hash_of(pa.table({"x": chunks})) == 0
