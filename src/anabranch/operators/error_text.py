"""Naming a user's function, its line and its data in an error, briefly."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

_LONGEST = 200


def short(value: object) -> str:
    """A value as text of bounded length."""
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def name_function(function: Callable[..., Any]) -> str:
    """A function's name with the file and line where it begins."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{name}()"
    return f"{name}() at {code.co_filename}:{code.co_firstlineno}"


def failing_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The deepest line in the file of the user's function that the error came through.

    Where there is none (the function is not written in Python), the function itself.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return name_function(function)
    code = getattr(function, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"line {frame.lineno} of {frame.filename}: {frame.line or '(source not available)'}"
