"""SQL literals: numbers, booleans, strings, and arrays of numbers.

Nothing is evaluated: ``0.5`` is a literal and ``1 / 2`` is not.
"""

from __future__ import annotations

import re

from anabranch.dataflow.sql.sql_text import single_call, split_arguments

_NUMBER = re.compile(r"(?P<digits>[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)([lsydf]|bd)?", re.IGNORECASE)
_TRUTH = {"true": True, "false": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def number(text: str) -> float | None:
    """The value of a numeric literal, else None.

    >>> number("0.25"), number(" 1e-2 "), number("7L"), number("a")
    (0.25, 0.01, 7.0, None)
    """
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else float(match["digits"])


def truth_value(text: str) -> bool | None:
    """The value of a boolean literal, else None."""
    return _TRUTH.get(text.strip().lower())


def number_array(text: str) -> tuple[float, ...] | None:
    """The numbers in ``array(…)``, else None.

    >>> number_array("array(0.25, 0.5)")
    (0.25, 0.5)
    """
    call = single_call(text)
    if call is None or call.name.lower() != "array":
        return None
    found = [number(part) for part in split_arguments(call.argument)]
    return None if None in found else tuple(n for n in found if n is not None)


def string(text: str) -> str | None:
    r"""The value of a quoted string, with escapes resolved, else None.

    >>> string("', '"), string(r"'\n'"), string("a")
    (', ', '\n', None)
    """
    stripped = text.strip()
    mark = stripped[:1]
    if len(stripped) < 2 or mark not in ("'", '"') or stripped[-1] != mark:
        return None
    body = re.compile(rf"(?s)(?:[^\\{mark}]|\\.|{mark}{mark})*")
    inner = stripped[1:-1]
    if not body.fullmatch(inner):
        return None
    resolved = re.sub(r"(?s)\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)
    return resolved.replace(mark * 2, mark)
