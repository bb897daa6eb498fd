"""What an error says of a user's function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import CorruptRun, UserFunctionFailed
from anabranch.operators.error_text import failing_line, function_failed, short


def fails(value: int) -> int:
    return deeper(value)


def deeper(value: int) -> int:
    return 1 // value


class Callable1:
    def __call__(self, value: int) -> int:
        return 1 // value


def caught(function: Callable[..., Any], *arguments: Any) -> BaseException:
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def test_the_line_is_the_deepest_one_in_the_users_file() -> None:
    line = failing_line(caught(fails, 0), fails)
    assert line.endswith(f"of {__file__}: return 1 // value")
    assert line.startswith(f"line {deeper.__code__.co_firstlineno + 1} ")


def test_a_line_in_somebody_elses_file_is_not_the_users() -> None:
    def reads(row: Any) -> Any:
        return functools.reduce(lambda a, b: a / b, row)

    line = failing_line(caught(reads, [1, 0]), reads)
    assert "lambda a, b: a / b" in line


@pytest.mark.parametrize(
    ("function", "text"), [(functools.partial(fails, 0), "1 // value"), (Callable1(), "1 // value")]
)
def test_what_is_no_plain_function_has_a_line_too(function: Any, text: str) -> None:
    arguments = () if isinstance(function, functools.partial) else (0,)
    assert text in failing_line(caught(function, *arguments), function)


def test_a_function_that_is_not_written_in_python_is_named_itself() -> None:
    assert failing_line(caught(int, "x"), int) == "int"


def test_long_values_are_cut() -> None:
    assert short("x") == "'x'"
    assert len(short("x" * 1000)) == 200
    assert short("x" * 1000).endswith("…")


def test_a_file_of_the_state_that_is_damaged_is_not_blamed_on_the_function() -> None:
    damaged = CorruptRun("a run is damaged", where="run/7")
    with pytest.raises(CorruptRun) as raised:
        function_failed(short, damaged, "operator match")
    assert raised.value is damaged
    assert raised.value.__cause__ is None
    assert isinstance(function_failed(short, ValueError("no"), "x"), UserFunctionFailed)
