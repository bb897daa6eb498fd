"""How large a value an expression of a query builds, as far as its constants tell.

A few functions build much from little: ``repeat('x', 2147483647)`` is two gigabytes, in the memory
that steps share. Their size is read off the analyzed query, before anything is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import ExpressionTooLarge

BUILT_BYTES = 64 << 20
"""The most that one expression may build."""

_ITEM = 8
_WIDTHS = re.compile(r"%(?:\d+\$)?[-#+ 0,(]*(\d*)(?:\.(\d+))?")

Constant = int | float | str | None
"""The value of a constant; points in time and intervals are numbers of days. None: not known."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of an analyzed query: its function, its arguments, its value if known."""

    function: str
    arguments: tuple[Expression, ...] = ()
    value: Constant = None


def check_built(expression: Expression) -> int:
    """The least number of bytes that an expression is known to build.

    Raises ``ExpressionTooLarge`` if it, or a part of it, builds too much.

    >>> check_built(Expression("repeat", (Expression("", value="ab"), Expression("", value=9))))
    18
    """
    sizes = [check_built(argument) for argument in expression.arguments]
    if isinstance(expression.value, str):
        return len(expression.value)
    build = BUILDERS.get(expression.function)
    if build is None:
        return max(sizes, default=_ITEM)
    size = build([argument.value for argument in expression.arguments], sizes)
    if size > BUILT_BYTES:
        raise ExpressionTooLarge(
            f"{expression.function} would build {size:,} bytes, more than the {BUILT_BYTES:,} "
            "that an expression of a query may build",
            do="Ask for less.",
        )
    return max(size, 0)


def _number(value: Constant) -> int:
    """A count; 0 if it is not known. Infinities count as much as anything."""
    if isinstance(value, str) or value is None or math.isnan(value):
        return 0
    return int(min(abs(value), 1 << 62))


def _sequence(values: Sequence[Constant], sizes: Sequence[int]) -> int:
    start, stop, step = (*values, 1)[:3]
    numbers = [each for each in (start, stop, step) if isinstance(each, int | float)]
    if len(numbers) < 3 or not numbers[2]:
        return 0
    return _ITEM * (_number((numbers[1] - numbers[0]) / numbers[2]) + 1)


def _format(values: Sequence[Constant], sizes: Sequence[int]) -> int:
    found = _WIDTHS.findall(values[0]) if isinstance(values[0], str) else []
    return sum(sizes) + sum(int(number) for widths in found for number in widths if number)


def _replace(values: Sequence[Constant], sizes: Sequence[int]) -> int:
    searched = len(values[1]) if isinstance(values[1], str) else max(sizes[1], 1)
    return sizes[0] // max(searched, 1) * sizes[-1] if len(sizes) > 2 else sizes[0]


def _sketch(values: Sequence[Constant], sizes: Sequence[int]) -> int:
    error, confidence = values[1], values[2]
    if not isinstance(error, int | float) or not isinstance(confidence, int | float):
        return 0
    if error <= 0 or not 0 < confidence < 1:
        return 0
    return _ITEM * math.ceil(2 / error) * math.ceil(-math.log(1 - confidence) / math.log(2))


Builder = Callable[[Sequence[Constant], Sequence[int]], int]
"""The size of a result, by the values and the sizes of the arguments."""

BUILDERS: dict[str, Builder] = {
    "repeat": lambda values, sizes: max(sizes[0], 1) * _number(values[1]),
    "array_repeat": lambda values, sizes: max(sizes[0], _ITEM) * _number(values[1]),
    "space": lambda values, sizes: _number(values[0]),
    "randstr": lambda values, sizes: _number(values[0]),
    "lpad": lambda values, sizes: _number(values[1]),
    "rpad": lambda values, sizes: _number(values[1]),
    "format_number": lambda values, sizes: _number(values[1]),
    "array_insert": lambda values, sizes: sizes[0] + _ITEM * _number(values[1]),
    "stack": lambda values, sizes: _ITEM * _number(values[0]),
    "sequence": _sequence,
    "format_string": _format,
    "printf": _format,
    "replace": _replace,
    "count_min_sketch": _sketch,
    "concat": lambda values, sizes: sum(sizes),
    "concat_ws": lambda values, sizes: sum(sizes),
    "array": lambda values, sizes: sum(sizes),
}
"""The functions whose result can be much larger than their arguments, and what they join."""
