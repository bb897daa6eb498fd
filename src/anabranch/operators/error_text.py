"""Short texts that name a user's function, its line and its data in errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.errors import UserFunctionFailed

_LONGEST = 200


def short(value: object) -> str:
    """A value as text of bounded length."""
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def name_function(function: Callable[..., Any]) -> str:
    """A function's name with its file and first line."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{name}()"
    return f"{name}() at {code.co_filename}:{code.co_firstlineno}"


def failing_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The deepest line of the traceback in the file of the user's function.

    If there is none (the function is not written in Python), the function itself.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return name_function(function)
    code = getattr(function, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"line {frame.lineno} of {frame.filename}: {frame.line or '(source not available)'}"


def function_failed(
    function: Callable[..., Any], error: Exception, where: str
) -> UserFunctionFailed:
    """The error for a user's function that raised, at a place such as its operator and row."""
    return UserFunctionFailed(
        f"{name_function(function)} raised {type(error).__name__}: {error}",
        where=f"{where}, {failing_line(error, function)}",
        do="Fix the function and run the pipeline again: it continues with this step.",
    )


def schema_text(schema: pa.Schema) -> str:
    """The columns of a schema with their types.

    >>> schema_text(pa.schema([("n", pa.int64()), ("at", pa.date32())]))
    'n int64, at date32[day]'
    """
    return ", ".join(f"{column.name} {column.type}" for column in schema)
