"""Rows as aligned text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from anabranch.operators.state_json import json_text

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_IN_LINES = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text with its control characters escaped, so that a terminal does not obey them.

    With ``lines`` it keeps newlines and tabs.

    >>> visible("a\x1b[2J\nb"), visible("a\nb", lines=True)
    ('a\\x1b[2J\\x0ab', 'a\nb')
    """
    return text.translate(_IN_LINES if lines else _CONTROLS)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table with a line for each row; control characters are escaped.

    >>> print(text_table(["customer", "total"], [["ada", 20.5], ["bob", None]]), end="")
    customer  total
    --------  -----
    ada        20.5
    bob        NULL
    """
    numeric = [any(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    cells = [
        [cell_text(name) for name in columns],
        *([cell_text(part) for part in row] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return "".join(_line(line, widths, numeric) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(aligned).rstrip() + "\n"


def cell_text(value: Any) -> str:  # noqa: ANN401  (whatever a column holds)
    r"""A value as a table cell: on one line, ``NULL`` for None, JSON for lists and dictionaries.

    >>> cell_text(None), cell_text([1, None]), cell_text("a\tb")
    ('NULL', '[1,null]', 'a\\x09b')
    """
    if value is None:
        return "NULL"
    if isinstance(value, list | dict | tuple):
        value = json_text(value)
    return visible(str(value))
