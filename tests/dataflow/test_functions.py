from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.dataflow.functions import STATEFUL_MAP_SIGNATURE, describe_function, function_finding


def three(key: Any, row: Any, state: Any) -> Any: ...
def more(key: Any, row: Any, state: Any, scale: int = 1) -> Any: ...
def anything(*arguments: Any) -> Any: ...
def two(key: Any, row: Any) -> Any: ...
def four(key: Any, row: Any, state: Any, other: Any) -> Any: ...
def named(key: Any, row: Any, *, state: Any) -> Any: ...
async def later(key: Any, row: Any, state: Any) -> Any: ...


def several(key: Any, row: Any, state: Any) -> Any:
    yield row


class Counter:
    def __call__(self, key: Any, row: Any, state: Any) -> Any: ...
    def method(self, key: Any, row: Any, state: Any) -> Any: ...
    def short(self, key: Any, row: Any) -> Any: ...


class Generating:
    def __call__(self, key: Any, row: Any, state: Any) -> Any:
        yield row


LINE = three.__code__.co_firstlineno


@pytest.mark.parametrize(
    "function",
    [
        *(three, more, anything, Counter(), Counter().method, max),
        functools.partial(four, other=1),
        functools.partial(four, 0),
        functools.wraps(two)(lambda key, row, state: None),
    ],
)
def test_what_takes_three_arguments_is_accepted(function: Callable[..., Any]) -> None:
    assert function_finding(function, STATEFUL_MAP_SIGNATURE) is None


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (two, f"two ({__file__}:{LINE + 3}) cannot be called with 3 positional arguments"),
        (four, "cannot be called with 3 positional arguments"),
        (named, "cannot be called with 3 positional arguments"),
        (Counter().short, "Counter.short ("),
        (functools.partial(three, 1), f"function three ({__file__}:{LINE}) cannot be called"),
        (lambda: None, "<lambda> ("),
        (later, f"function later ({__file__}:{LINE + 6}) is async"),
        (several, "several ("),
        (Generating(), "is a generator"),
        (functools.partial(several), "is a generator"),
    ],
)
def test_what_cannot_be_called_so_is_refused(function: Callable[..., Any], what: str) -> None:
    finding = function_finding(function, STATEFUL_MAP_SIGNATURE)
    assert finding is not None
    assert what in finding.what
    assert finding.do


def test_functions_are_described_by_name_file_and_line() -> None:
    assert describe_function(three) == f"three ({__file__}:{LINE})"
    assert describe_function(functools.partial(three, 1)) == f"three ({__file__}:{LINE})"
    assert describe_function(Counter().method).startswith(f"Counter.method ({__file__}:")
    assert describe_function(Counter()).startswith(f"Counter ({__file__}:")
    assert (
        describe_function(functools.wraps(three)(lambda *a: None)) == f"three ({__file__}:{LINE})"
    )
    assert describe_function(max) == "max"
