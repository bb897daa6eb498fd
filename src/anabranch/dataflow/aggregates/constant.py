"""The constants after an aggregate's arguments: allowed values and defaults.

They are SQL literals: numbers, booleans, strings, and arrays of numbers. Nothing is evaluated:
``0.5`` is a literal and ``1 / 2`` is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec

from anabranch.dataflow.aggregates.value import Parameter
from anabranch.dataflow.sql.sql_text import single_call, split_arguments
from anabranch.errors import InvalidAggregate

_NUMBER = re.compile(r"(?P<digits>[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)([lsydf]|bd)?", re.IGNORECASE)
_TRUTH = {"true": True, "false": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


class Constant(msgspec.Struct, frozen=True):
    """One constant: what it is, how to read its text, and its default.

    A constant whose ``default`` is None is required.
    """

    what: str
    read: Callable[[str], Parameter | None]
    default: Parameter | None

    def value(self, text: str, call: str) -> Parameter:
        """The value that a text spells; ``InvalidAggregate`` if it spells none."""
        value = self.read(text)
        if value is None:
            raise InvalidAggregate(
                f'"{text}" in "{call}" is not {self.what}',
                do="Write a literal: expressions are not evaluated here.",
            )
        return value


def _percentage(text: str) -> Parameter | None:
    one = number(text)
    many = number_array(text) if one is None else (one,)
    if not many or not all(0 <= share <= 1 for share in many):
        return None
    return many if one is None else one


def _accuracy(text: str) -> Parameter | None:
    found = number(text)
    whole = found is not None and found == int(found) and 0 < found < 1 << 31
    return found if whole else None


def _how_many(text: str) -> Parameter | None:
    found = _accuracy(text)
    return found if isinstance(found, float) and found <= 100_000 else None


def _relative_error(text: str) -> Parameter | None:
    found = number(text)
    return found if found is not None and precision_of(found) is not None else None


def precision_of(relative_error: float) -> int | None:
    """The number of index bits for a HyperLogLog with this standard error, as in Spark.

    0.05 needs 9 bits. None if the error is out of range.
    """
    if not 0 < relative_error <= 1:
        return None
    bits = math.ceil(2 * math.log2(1.106 / relative_error))
    return bits if 4 <= bits <= 18 else None


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


PERCENTAGE = Constant("a percentage from 0 to 1, or an array of them", _percentage, None)
ACCURACY = Constant("an accuracy, a whole number above 0", _accuracy, 10000.0)
HOW_MANY = Constant("a whole number from 1 to 100000", _how_many, False)
RELATIVE_ERROR = Constant("a relative error from 0.0022 to 0.27", _relative_error, 0.05)
DELIMITER = Constant("a delimiter in quotes", string, "")
FLAG = Constant("true or false", truth_value, False)
