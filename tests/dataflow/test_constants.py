from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.aggregates.constant import number, number_array, string, truth_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" -0.5 ", -0.5),
        (".25", 0.25),
        ("2.", 2.0),
        ("1E3", 1000.0),
        ("0.05D", 0.05),
        ("7L", 7.0),
        ("0.1BD", 0.1),
        ("1 / 2", None),
        ("x", None),
        ("'1'", None),
        ("", None),
    ],
)
def test_a_number_is_a_number(text: str, value: float | None) -> None:
    assert number(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back(value: float) -> None:
    assert number(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("array(0.1, 1)", (0.1, 1.0)),
        ("ARRAY()", ()),
        ("array(0.1, x)", None),
        ("list(0.1)", None),
        ("0.1", None),
    ],
)
def test_numbers_are_in_an_array(text: str, value: tuple[float, ...] | None) -> None:
    assert number_array(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("','", ","),
        ('"; "', "; "),
        ("''", ""),
        (r"'\n'", "\n"),
        (r"'\''", "'"),
        (r"'\\'", "\\"),
        ("'it''s'", "it's"),
        ("'a' || 'b'", None),
        ("a", None),
        ("'", None),
    ],
)
def test_a_text_is_what_stands_between_its_quotes(text: str, value: str | None) -> None:
    assert string(text) == value


def test_only_true_and_false_are_truth_values() -> None:
    assert [truth_value(text) for text in ("TRUE", " false", "1", "null")] == [
        True,
        False,
        None,
        None,
    ]
