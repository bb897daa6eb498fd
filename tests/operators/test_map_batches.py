"""``map_batches``: rows in, rows out, each with its key and its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import AnabranchError, OutputMismatch, UserFunctionFailed
from anabranch.operators import map_batches
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.map_batches import MapBatches
from anabranch.operators.rows import Rows
from tests.operators.keyed_rows import make_rows

KEY = pa.schema([("customer", pa.string())])


def operator(function: Any, output: str = "twice bigint") -> MapBatches:
    return MapBatches("double", function, parse_schema(output))


def rows_of(numbers: list[int], order: list[int] | None = None) -> Rows:
    keys = [(f"k{number % 3}",) for number in numbers]
    values = pa.table({"n": pa.array(numbers, type=pa.int64())})
    return make_rows(keys, KEY, values, order=order or list(range(len(numbers))))


def twice(table: pa.Table) -> pa.Table:
    return pa.table({"twice": pc.multiply(table.column("n"), 2)})


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_one_row_for_each_keeps_key_and_order(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_batches, "BATCH_ROWS", batch)
    rows = rows_of([5, 1, 4], order=[7, 8, 9])
    output = operator(twice).run(rows)
    assert output.values.to_pydict() == {"twice": [10, 2, 8]}
    assert output.keys == rows.keys
    assert output.order is not None
    assert [c.tolist() for c in output.order.columns[2:]] == [[7, 8, 9], [0, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 8), st.booleans())
def test_rows_are_dropped_and_repeated_by_ord(
    numbers: list[int], batch: int, backwards: bool
) -> None:
    def repeated(table: pa.Table) -> pa.Table:
        places = np.repeat(np.arange(table.num_rows), table.column("n").to_numpy())
        return table.take(pa.array(places[::-1] if backwards else places))

    before, map_batches.BATCH_ROWS = map_batches.BATCH_ROWS, batch
    try:
        output = operator(repeated, "n bigint").run(rows_of(numbers))
    finally:
        map_batches.BATCH_ROWS = before
    assert output.order is not None
    found = list(
        zip(
            *(column.tolist() for column in output.order.columns[2:]),
            output.values.column("n").to_pylist(),
            strict=True,
        )
    )
    wanted = [(place, i, n) for place, n in enumerate(numbers) for i in range(n)]
    assert sorted(found) == wanted
    assert output.keys is not None
    assert output.keys.column(0).to_pylist() == [f"k{n % 3}" for _, _, n in found]


def test_rows_outside_a_region_have_neither_key_nor_hash() -> None:
    output = operator(twice).run(Rows(pa.table({"n": [1, 2]})))
    assert (output.hashes, output.keys, output.order) == (None, None, None)


def test_no_rows_give_no_rows_of_the_output() -> None:
    output = operator(twice).run(rows_of([]))
    assert output.values.schema.names == ["twice"]
    assert len(output) == 0


def test_values_are_cast_to_the_output() -> None:
    output = operator(lambda t: t.rename_columns(["s", "_ord"]), "s int").run(rows_of([3]))
    assert output.values.schema.field("s").type == pa.int32()


def raises(table: pa.Table) -> pa.Table:
    raise ZeroDivisionError("at last")


@pytest.mark.parametrize(
    ("function", "output", "kind", "text"),
    [
        (raises, "n bigint", UserFunctionFailed, "raised ZeroDivisionError: at last"),
        (lambda t: 7, "n bigint", OutputMismatch, "returned 7 instead of a table"),
        (lambda t: t.slice(1).drop_columns(["_ord"]), "n bigint", OutputMismatch, "1 rows for 2"),
        (lambda t: t.drop_columns(["n"]), "n bigint", OutputMismatch, "returned no column n"),
        (lambda t: pa.table({"n": ["x", "y"]}), "n bigint", OutputMismatch, "do not fit"),
        (lambda t: pa.table({"n": [1, None]}), "n bigint not null", OutputMismatch, "NULL in n"),
        (
            lambda t: pa.table({"n": [1], "_ord": pa.array([9], type=pa.int64())}),
            "n bigint",
            OutputMismatch,
            "a value of _ord that it was not given",
        ),
        (
            lambda t: pa.table({"n": [1], "_ord": ["a"]}),
            "n bigint",
            OutputMismatch,
            "another _ord than it was given",
        ),
    ],
)
def test_what_is_wrong_is_said(
    function: Any, output: str, kind: type[AnabranchError], text: str
) -> None:
    with pytest.raises(kind) as error:
        operator(function, output).run(rows_of([1, 2]))
    assert text in str(error.value)
    assert "operator double" in str(error.value)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_rows_that_a_function_cannot_take_are_told_and_the_rest_goes_on(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inverse(table: pa.Table) -> pa.Table:
        return pa.table({"twice": pc.divide(pa.scalar(60), table.column("n"))})

    monkeypatch.setattr(map_batches, "BATCH_ROWS", batch)
    dead: list[RowFailure] = []
    output = operator(inverse).run(rows_of([5, 0, 4, 0, 3], order=[7, 8, 9, 10, 11]), dead)
    assert output.values.to_pydict() == {"twice": [12, 15, 20]}
    assert output.order is not None
    assert output.order.columns[2].tolist() == [7, 9, 11]
    assert [(letter.operator, letter.row.n) for letter in dead] == [("double", 0)] * 2
    assert all("divide by zero" in letter.error for letter in dead)
