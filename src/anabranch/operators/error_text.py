"""Short texts that name a user's function, its line and its data in errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import StoreError, UserFunctionFailed

_LONGEST = 200


def short(value: object) -> str:
    """A value as text of bounded length."""
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def failing_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The deepest line of the traceback in the file of the user's function.

    If there is none (the function is not written in Python), the function itself.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return describe_function(function)
    code = getattr(function, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"line {frame.lineno} of {frame.filename}: {frame.line or '(source not available)'}"


def function_failed(
    function: Callable[..., Any], error: Exception, where: str
) -> UserFunctionFailed:
    """The error for a user's function that raised, at a place such as its operator and row.

    State is read when a function asks for it. That its file is lost or damaged is not the
    function's fault, and can be mended: such an error is raised as it is.
    """
    if isinstance(error, StoreError):
        raise error
    return UserFunctionFailed(
        f"{describe_function(function)} raised {type(error).__name__}: {error}",
        where=f"{where}, {failing_line(error, function)}",
        do="Fix the function and run the pipeline again: it continues with this step.",
    )


def row_advice(row: object, schema: pa.Schema) -> str:
    """What to return in place of a row that does not fit.

    >>> row_advice(5, pa.schema([("n", pa.int64())]))
    'a row is a tuple with one value for each of (n bigint). Or change output=.'
    """
    columns = to_ddl(schema)
    if isinstance(row, tuple) and row and all(isinstance(part, tuple) for part in row):
        return f"several rows are a list, not a tuple; each has one value for each of ({columns})."
    return f"a row is a tuple with one value for each of ({columns}). Or change output=."
