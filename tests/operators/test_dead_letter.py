"""Dead letters say what failed, and never fail themselves."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import namedtuple
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.dead_letters import DEAD_LETTER_DDL, DEAD_LETTER_SCHEMA
from anabranch.dataflow.types.schema import to_ddl
from anabranch.operators.dead_letter import RowFailure, dead_letters, row_failure, with_step

Key = namedtuple("Key", ["customer"])
Row = namedtuple("Row", ["amount", "at"])


def divide(row: Any) -> float:
    return 1 / float(row.amount)


def test_the_schema_is_the_documented_one() -> None:
    assert to_ddl(DEAD_LETTER_SCHEMA) == DEAD_LETTER_DDL


def test_what_a_users_function_raised_is_told_with_key_row_and_its_own_stack() -> None:
    row = Row(0, dt.datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC))
    try:
        divide(row)
    except ZeroDivisionError as error:
        failure = row_failure("ratio", error, row, Key("ann"))
    (letter,) = dead_letters([failure], step=7).to_pylist()
    assert letter["operator"] == "ratio"
    assert letter["kind"] == "function"
    assert json.loads(letter["key"]) == {"customer": "ann"}
    assert json.loads(letter["row"]) == {"amount": 0, "at": "2024-01-02T03:04:05.000678Z"}
    assert letter["error"].startswith("ZeroDivisionError: ")
    assert "in divide" in letter["traceback"]
    assert "test_what_a_users_function" not in letter["traceback"]
    assert letter["place"] is None
    assert letter["step"] == 7


def test_letters_that_sql_made_get_their_step_and_keep_the_rest() -> None:
    made = {name: pa.array([None], kind) for name, kind in zip(*_columns(), strict=True)}
    made |= {"row": pa.array(['{"amount": "x"']), "place": pa.array(["/in/a.json"])}
    letters = with_step(pa.table(dict(reversed(made.items()))), step=9)
    assert letters.schema == DEAD_LETTER_SCHEMA
    (letter,) = letters.to_pylist()
    assert (letter["row"], letter["place"], letter["step"]) == ('{"amount": "x"', "/in/a.json", 9)
    assert letter["key"] is letter["traceback"] is None


def _columns() -> tuple[list[str], list[pa.DataType]]:
    return DEAD_LETTER_SCHEMA.names, DEAD_LETTER_SCHEMA.types


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (Decimal("1.50"), 1.5),
        (b"\xff", "/w=="),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        ([(1, None), Row(2, 3)], [[1, None], {"amount": 2, "at": 3}]),
        ({1: {"x": math.inf}}, {"1": {"x": "Infinity"}}),
        ("half \ud800", "half \\ud800"),
        (2**70, "…"),
        (complex(1, 2), "(1+2j)"),
    ],
)
def test_values_are_printed_as_json_whatever_they_are(value: Any, printed: Any) -> None:
    (letter,) = dead_letters([RowFailure("o", {"v": value}, "e")], step=1).to_pylist()
    if printed != "…":
        assert json.loads(letter["row"]) == {"v": printed}
    else:
        assert str(value) in letter["row"]


class Hostile:
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_row_that_cannot_be_printed_is_described() -> None:
    (letter,) = dead_letters([RowFailure("o", {"v": Hostile()}, "e")], 1).to_pylist()
    assert "Hostile" in letter["row"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=4))
def test_any_rows_become_letters_of_the_schema_in_order(rows: list[dict[str, Any]]) -> None:
    failures = [RowFailure(f"o{i}", row, "e") for i, row in enumerate(rows)]
    letters = dead_letters(failures, step=2)
    assert letters.schema == DEAD_LETTER_SCHEMA
    letters.validate(full=True)
    assert letters["operator"].to_pylist() == [f"o{i}" for i in range(len(rows))]
    assert letters["step"] == pa.chunked_array([[2] * len(rows)], pa.int64())
