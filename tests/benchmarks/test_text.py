"""Numbers and tables as text."""

from __future__ import annotations

import doctest

from benchmarks import measure, steps_picture, text


def test_examples_in_the_docstrings() -> None:
    for module in (measure, steps_picture, text):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


def test_a_table_with_numbers_on_the_right() -> None:
    assert text.table(("a", "n"), [("x|y", "1"), ("z", "20")], right=(1,)) == (
        "| a | n |\n|---|---:|\n| x\\|y | 1 |\n| z | 20 |"
    )
