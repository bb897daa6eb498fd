"""The user's functions: their location, their fingerprint, and checks of their signature."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from anabranch.dataflow.findings import Finding


class Signature(NamedTuple):
    """How an operator calls the user's function, worded for error messages."""

    arguments: int
    takes: str
    example: str
    returns: str


STATEFUL_MAP_SIGNATURE = Signature(
    3,
    "key, row and state",
    "def function(key, row, state): … return output, new_state",
    "Return (output, new state); several rows are a list of outputs.",
)
STATEFUL_BATCHES_SIGNATURE = Signature(
    2,
    "rows and state",
    "def function(rows, state): … return output, new_state",
    "Return (output, new state), both tables.",
)
MAP_BATCHES_SIGNATURE = Signature(
    1, "a table", "def function(table): … return table", "Return one table."
)
APPLY_SIGNATURE = Signature(
    1, "a table", "def function(table): … return table", "Return one table of all windows."
)
TRANSFORM_SIGNATURE = Signature(
    1, "a DataFrame", "def function(df): … return df.select(…)", "Return one DataFrame."
)


@dataclass(frozen=True)
class DriverFunction:
    """A function that only the driver calls; tasks get its fingerprint alone.

    It may therefore hold things that cannot leave the driver, such as a DataFrame.
    """

    function: Callable[[Any], Any] | None
    fingerprint: str

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> DriverFunction:
        """The function with a fingerprint of its code."""
        return cls(function, code_fingerprint(function))

    def __call__(self, given: Any) -> Any:  # noqa: ANN401  (whatever the user's function takes)
        """Call the function; only on the driver."""
        assert self.function is not None, "a task called a function that only the driver has"
        return self.function(given)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the fingerprint without the function."""
        return (DriverFunction, (None, self.fingerprint))


def code_fingerprint(function: Callable[..., Any]) -> str:
    """A hash of the function's code, the same in every process.

    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    code = _code_of(inspect.unwrap(_innermost(function)))
    text = describe_function(function) if code is None else _code_text(code)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    code: CodeType | None = getattr(function, "__code__", None)
    return code or getattr(_call_of(function), "__code__", None)


def _code_text(code: CodeType) -> str:
    inside = [_constant_text(constant) for constant in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, inside))


def _constant_text(constant: object) -> str:
    if isinstance(constant, CodeType):
        return _code_text(constant)
    # The order of a set of strings differs between processes.
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def describe_function(function: Callable[..., Any]) -> str:
    """The function's name with file and line, as far as Python knows them."""
    inner = inspect.unwrap(_innermost(function))
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    code = _code_of(inner)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def function_finding(function: Callable[..., Any], signature: Signature) -> Finding | None:
    """Why a function does not fit a signature: its arguments, or it is async or a generator."""
    where, example = describe_function(function), signature.example
    if not _takes(function, signature.arguments):
        plural = "" if signature.arguments == 1 else "s"
        return Finding(
            f"function {where} cannot be called with {signature.arguments} "
            f"positional argument{plural}",
            f"Let it take {signature.takes}: {example}.",
        )
    inner = _innermost(function)
    for candidate in (inner, _call_of(inner)):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return Finding(f"function {where} is async", f"Use a plain function: {example}.")
        if inspect.isgeneratorfunction(candidate):
            return Finding(f"function {where} is a generator", signature.returns)
    return None


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        # Check the function that will be called, not the one that a decorator wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return True
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        return False
    return True


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside ``functools.partial`` and bound methods; decorators stay."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            return function


def _call_of(function: Callable[..., Any]) -> object:
    """The ``__call__`` method of a callable object."""
    return getattr(type(function), "__call__", None)  # noqa: B004
