"""The user's functions: where they are, and whether they can be called as they will be."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from anabranch.dataflow.findings import Finding

_SHAPE = "def function(key, row, state): … return output, new_state"
_BATCHES_SHAPE = "def function(rows, state): … return output, new_state"
_BATCH_SHAPE = "def function(table): … return table"
_FRAME_SHAPE = "def function(df): … return df.select(…)"


@dataclass(frozen=True)
class DriverFunction:
    """A function that only the driver calls: tasks get its fingerprint and not the function.

    It may therefore hold what cannot leave the driver, such as a DataFrame.
    """

    function: Callable[[Any], Any] | None
    fingerprint: str

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> DriverFunction:
        """The function with a fingerprint of its code."""
        return cls(function, code_fingerprint(function))

    def __call__(self, given: Any) -> Any:  # noqa: ANN401  (whatever the user's function takes)
        """Call it; only on the driver."""
        assert self.function is not None, "a function of the driver was called in a task"
        return self.function(given)

    def __reduce__(self) -> tuple[object, ...]:
        """Leave the function behind."""
        return (DriverFunction, (None, self.fingerprint))


def code_fingerprint(function: Callable[..., Any]) -> str:
    """A number of the function's code, the same in every process; other code has another one.

    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    inner = inspect.unwrap(_innermost(function))
    code = getattr(inner, "__code__", None) or getattr(_call_of(inner), "__code__", None)
    text = describe_function(function) if code is None else _code_text(code)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _code_text(code: CodeType) -> str:
    inside = [_constant_text(constant) for constant in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, inside))


def _constant_text(constant: object) -> str:
    if isinstance(constant, CodeType):
        return _code_text(constant)
    # The order of a set of strings is another one in every process.
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def describe_function(function: Callable[..., Any]) -> str:
    """The function's name with file and line, as far as Python knows them."""
    inner = inspect.unwrap(_innermost(function))
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    code = getattr(inner, "__code__", None) or getattr(_call_of(inner), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def function_finding(function: Callable[..., Any]) -> Finding | None:
    """Why a function cannot be called with key, row and state and give output and state."""
    where = describe_function(function)
    if not _takes(function, 3):
        return Finding(
            f"function {where} cannot be called with 3 positional arguments",
            f"Let it take key, row and state: {_SHAPE}.",
        )
    return _kind_finding(
        function, _SHAPE, "Return (output, new state); several rows are a list of outputs."
    )


def batch_function_finding(function: Callable[..., Any]) -> Finding | None:
    """Why a function cannot be called with a table and give a table."""
    if not _takes(function, 1):
        return Finding(
            f"function {describe_function(function)} cannot be called with 1 positional argument",
            f"Let it take a table: {_BATCH_SHAPE}.",
        )
    return _kind_finding(function, _BATCH_SHAPE, f"Return one table: {_BATCH_SHAPE}.")


def frame_function_finding(function: Callable[..., Any]) -> Finding | None:
    """Why a function cannot be called with a DataFrame and give a DataFrame."""
    if not _takes(function, 1):
        return Finding(
            f"function {describe_function(function)} cannot be called with 1 positional argument",
            f"Let it take a DataFrame: {_FRAME_SHAPE}.",
        )
    return _kind_finding(function, _FRAME_SHAPE, f"Return one DataFrame: {_FRAME_SHAPE}.")


def batches_function_finding(function: Callable[..., Any]) -> Finding | None:
    """Why a function cannot be called with two tables and give two."""
    if not _takes(function, 2):
        return Finding(
            f"function {describe_function(function)} cannot be called with 2 positional arguments",
            f"Let it take rows and state: {_BATCHES_SHAPE}.",
        )
    return _kind_finding(function, _BATCHES_SHAPE, "Return (output, new state), both tables.")


def _kind_finding(function: Callable[..., Any], shape: str, instead: str) -> Finding | None:
    """Why a function is of a kind that gives something else than its result when it is called."""
    where = describe_function(function)
    inner = _innermost(function)
    for candidate in (inner, _call_of(inner)):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return Finding(f"function {where} is async", f"Use a plain function: {shape}.")
        if inspect.isgeneratorfunction(candidate):
            return Finding(f"function {where} is a generator", instead)
    return None


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        # The function that is called decides, not the one that a decorator says it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # Built-in functions need not tell.
        return True
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        return False
    return True


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function within ``functools.partial`` and bound methods; decorators stay."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            return function


def _call_of(function: Callable[..., Any]) -> object:
    """The method that runs when an object of the user's own class is called."""
    return getattr(type(function), "__call__", None)  # noqa: B004
