"""The parts of Spark SQL that can be read without Spark: names, aliases, one function call.

Nothing here understands an expression. It only tells the plain cases (a column, a renamed column,
``f(…)``) from everything else, and never confuses the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED = r"`(?:[^`]|``)+`"
_NAME = re.compile(rf"{_WORD}|{_QUOTED}")
_ALIAS = re.compile(rf"(?s)(?P<body>.*\S)\s+as\s+(?P<alias>{_WORD}|{_QUOTED})", re.IGNORECASE)
_CALL = re.compile(rf"(?P<name>{_WORD})\s*\(")
#: Words that look like columns but are values.
_LITERALS = frozenset({"true", "false", "null"})
_VALUES = _LITERALS | frozenset(
    {
        *("current_date", "current_time", "current_timestamp", "localtimestamp"),
        *("current_user", "session_user", "user"),
        *("current_catalog", "current_database", "current_schema"),
    }
)
_CLOSER = {"(": ")", "[": "]", "{": "}"}


class Call(NamedTuple):
    """A function call: the name, and the text between the parentheses."""

    name: str
    argument: str


def quote(name: str) -> str:
    """The name in backquotes, as Spark reads it back.

    >>> quote("unit price")
    '`unit price`'
    """
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def sql_literal(text: str) -> str:
    r"""The text as a string literal of Spark SQL.

    >>> print(sql_literal("it's"))
    'it\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def parenthesize(text: str) -> str:
    """The user's expression as part of a larger one; the newlines end a trailing comment."""
    return f"(\n{text}\n)"


def quote_if_needed(name: str) -> str:
    """The name, in backquotes only if SQL needs them."""
    return name if re.fullmatch(_WORD, name) else quote(name)


def unquote(text: str) -> str:
    """The name that a plain or backquoted word stands for."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def identifier(text: str) -> str | None:
    """The column that this text names, or None if it is more than a name.

    ``true``, ``null``, ``current_date`` and the like are values unless they are in backquotes.

    >>> identifier(" amount "), identifier("`unit price`"), identifier("amount + 1")
    ('amount', 'unit price', None)
    """
    stripped = text.strip()
    if not _NAME.fullmatch(stripped) or stripped.lower() in _VALUES:
        return None
    return unquote(stripped)


def own_name(text: str) -> str | None:
    """The name of an expression without an alias: a column's own name, else None.

    ``user``, ``current_date`` and the like count: Spark prefers a column of that name.

    >>> own_name("user"), own_name("null"), own_name("amount + 1")
    ('user', None, None)
    """
    stripped = text.strip()
    if not _NAME.fullmatch(stripped) or stripped.lower() in _LITERALS:
        return None
    return unquote(stripped)


def split_alias(text: str) -> tuple[str, str | None]:
    """The expression and its alias from ``… as name``; the alias is None if there is none.

    >>> split_alias("amount * 2 as doubled")
    ('amount * 2', 'doubled')
    """
    match = _ALIAS.fullmatch(text.strip())
    if match is None:
        return text.strip(), None
    return match["body"], unquote(match["alias"])


def single_call(text: str) -> Call | None:
    """The function call that makes up the whole text, else None.

    >>> single_call("sum(amount * (1 + tax))")
    Call(name='sum', argument='amount * (1 + tax)')
    >>> single_call("sum(a) / count(*)") is None
    True
    """
    found = leading_call(text)
    return None if found is None or found[1] else found[0]


def leading_call(text: str) -> tuple[Call, str] | None:
    """The function call at the start of a text, and the rest of the text.

    >>> leading_call("sum(a) filter (where b)")
    (Call(name='sum', argument='a'), 'filter (where b)')
    """
    stripped = text.strip()
    match = _CALL.match(stripped)
    if match is None:
        return None
    start = match.end()
    for place, mark, depth in _marks(stripped):
        if place >= start and depth == 0:
            if mark != ")":
                return None
            return Call(match["name"], stripped[start:place].strip()), stripped[place + 1 :].strip()
    return None


def split_arguments(text: str) -> list[str]:
    """The arguments in the text between a call's parentheses.

    >>> split_arguments("a, f(b, c)")
    ['a', 'f(b, c)']
    """
    if not text.strip():
        return []
    commas = [place for place, mark, depth in _marks(text) if mark == "," and depth == 0]
    starts, ends = [0, *(place + 1 for place in commas)], [*commas, len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _marks(text: str) -> Iterator[tuple[int, str, int]]:
    """The brackets and commas outside quotes, each with the depth after it."""
    open_brackets: list[str] = []
    place = 0
    while place < len(text):
        mark = text[place]
        if mark in "'\"`":
            place = _end_of_quoted(text, place)
        elif mark in _CLOSER:
            open_brackets.append(_CLOSER[mark])
            yield place, mark, len(open_brackets)
        elif open_brackets and mark == open_brackets[-1]:
            open_brackets.pop()
            yield place, mark, len(open_brackets)
        elif mark == ",":
            yield place, mark, len(open_brackets)
        place += 1


def _end_of_quoted(text: str, start: int) -> int:
    """The place of the closing quote. A doubled quote just opens another quoted part."""
    mark, place = text[start], start + 1
    while place < len(text) and text[place] != mark:
        place += 2 if text[place] == "\\" and mark != "`" else 1
    return place
