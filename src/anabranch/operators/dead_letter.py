"""Dead letters: rows that say what could not be processed, where and why.

They are ordinary rows of an ordinary stream: they are staged, committed and published with their
step, so each failure appears exactly once, like all output.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.operators.error_text import short

_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class RowFailure(msgspec.Struct, frozen=True):
    """A row for which a user's function failed.

    ``key`` and ``row`` are mappings or named tuples.
    """

    operator: str
    row: Any
    error: str
    key: Any = None
    traceback: str | None = None


def row_failure(operator: str, error: BaseException, row: Any, key: Any = None) -> RowFailure:
    """Describe the failure of a user's function; call it from the frame that caught the error."""
    frames = traceback.TracebackException.from_exception(error)
    del frames.stack[:1]  # the caller's own
    text = f"{type(error).__name__}: {error}"
    return RowFailure(operator, row, text, key, traceback="".join(frames.format()))


def dead_letters(failures: Sequence[RowFailure], step: int) -> pa.Table:
    """The failures of a step as rows of ``DEAD_LETTER_SCHEMA``, in order. Never raises.

    >>> letters = dead_letters([RowFailure("total", {"n": 1}, "ValueError: no")], step=3)
    >>> letters.select(["operator", "row", "error", "step"]).to_pylist()
    [{'operator': 'total', 'row': '{"n":1}', 'error': 'ValueError: no', 'step': 3}]
    """
    columns: dict[str, list[Any]] = {
        "operator": [failure.operator for failure in failures],
        "kind": ["function"] * len(failures),
        "key": [as_json(failure.key) for failure in failures],
        "row": [as_json(failure.row) for failure in failures],
        "place": [None] * len(failures),
        "error": [_clean(failure.error) for failure in failures],
        "traceback": [_clean(failure.traceback) for failure in failures],
        "step": [step] * len(failures),
    }
    return pa.table(columns, schema=DEAD_LETTER_SCHEMA)


def with_step(letters: pa.Table, step: int) -> pa.Table:
    """Letters of any kind as rows of ``DEAD_LETTER_SCHEMA``, with the number of their step."""
    steps = pa.array([step] * letters.num_rows, type=pa.int64())
    place = DEAD_LETTER_SCHEMA.get_field_index("step")
    columns = [letters.column(name) for name in DEAD_LETTER_SCHEMA.names]
    columns[place] = pa.chunked_array([steps])
    return pa.table(columns, schema=DEAD_LETTER_SCHEMA)


def as_json(value: Any) -> str | None:
    """A key or a row as a JSON object, or as text if that cannot be. Never raises."""
    if value is None:
        return None
    try:
        return _ENCODER.encode(_printable(value)).decode()
    except Exception:  # a letter without its row is better than a step that cannot finish
        return _clean(short(value))


def _printable(value: Any) -> Any:
    """A value in a form that JSON can encode; NaN and the infinities become text."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str():
            return _clean(value)
        case Mapping():
            return {str(_printable(name)): _printable(part) for name, part in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {n: _printable(v) for n, v in zip(value._fields, value, strict=True)}
        case list() | tuple():
            return [_printable(part) for part in value]
        case _:
            return value


def _clean(text: str | None) -> str | None:
    """Text with lone surrogates, which come from broken decoding, escaped."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
