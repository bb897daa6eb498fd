"""The little SQL that runs without Spark: columns, constants, and conditions on these.

What is understood gives what Spark gives, also for NULL. ``NotPlain`` refuses everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.dataflow.sql.sql_text import own_name, unquote
from anabranch.dataflow.types.row_type import RowType
from anabranch.dataflow.types.schema import COLLATION, type_text

Values: TypeAlias = "pa.Array | pa.ChunkedArray"

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'[^'\\]*'|-?\d+|[A-Za-z_][A-Za-z0-9_]*|[<>!=]+|[()])\s*")
_NAME = re.compile(r"[A-Za-z_`]")
_EQUAL: dict[str, Callable[[Values, Values], Values]] = {
    **{"=": pc.equal, "==": pc.equal, "<>": pc.not_equal, "!=": pc.not_equal}
}
_COMPARE: dict[str, Callable[[Values, Values], Values]] = {
    **_EQUAL,
    **{"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal},
}
_WORDS = frozenset({"and", "or", "not", "is", "null"})


class NotPlain(Exception):
    """The expression ``text`` is not understood without Spark; the message says why."""

    def __init__(self, why: str, text: str = "") -> None:
        """``text`` is added by whoever knows the whole of it."""
        super().__init__(why)
        self.text = text


@dataclass(frozen=True, slots=True)
class PlainValue:
    """An expression over one row: what it gives, and its values for the rows of a table."""

    field: pa.Field
    of: Callable[[pa.Table], Values]
    is_constant: bool = False


def plain_value(schema: pa.Schema, text: str) -> PlainValue:
    """A column, or a constant: a whole number, a text, true or false.

    >>> table = pa.table({"n": [1, 2]})
    >>> plain_value(table.schema, "'one'").of(table).to_pylist()
    ['one', 'one']
    """
    name = own_name(text)
    constant = _constant(text.strip()) if name is None else _column(schema, name)
    if constant is None:
        raise NotPlain("only columns and constants are understood without Spark", text)
    return constant


def plain_condition(schema: pa.Schema, text: str) -> PlainValue:
    """Comparisons of columns and constants, ``is null``, ``and``, ``or``, ``not`` and brackets.

    >>> table = pa.table({"n": [1, None, 3]})
    >>> plain_condition(table.schema, "n > 1 or n is null").of(table).to_pylist()
    [False, True, True]
    """
    try:
        return _Condition(schema, _tokens(text)).whole()
    except NotPlain as error:
        raise NotPlain(str(error), text) from error


def _column(schema: pa.Schema, name: str) -> PlainValue:
    found = RowType.of(schema).find(name)
    if found is None or found.field is None:
        raise NotPlain(f'without Spark, "{name}" can only be a column, and there is none', name)
    own = found.name
    return PlainValue(found.field, lambda table: table.column(own))


def _constant(text: str) -> PlainValue | None:
    value: Any = None
    kind = pa.string()
    if text.lower() in ("true", "false"):
        value, kind = text.lower() == "true", pa.bool_()
    elif re.fullmatch(r"'[^'\\]*'", text):
        value = text[1:-1]
    elif re.fullmatch(r"-?\d+", text) and -(2**63) <= int(text) < 2**63:
        value = int(text)
        kind = pa.int32() if -(2**31) <= value < 2**31 else pa.int64()
    else:
        return None
    scalar = pa.scalar(value, kind)
    return PlainValue(
        pa.field("", kind, nullable=False),
        lambda table: pa.repeat(scalar, table.num_rows),
        is_constant=True,
    )


def _tokens(text: str) -> list[str]:
    found, place = list[str](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise NotPlain(f"{text[place:].strip()!r} is not understood without Spark")
        found.append(match[1])
        place = match.end()
    return found


class _Condition:
    """Reads a condition from left to right."""

    def __init__(self, schema: pa.Schema, tokens: list[str]) -> None:
        self._schema = schema
        self._tokens = tokens
        self._place = 0

    def whole(self) -> PlainValue:
        """All of it."""
        made = self._either()
        if self._place < len(self._tokens):
            rest = " ".join(self._tokens[self._place :])
            raise NotPlain(f"{rest!r} is not understood here without Spark")
        return made

    def _either(self) -> PlainValue:
        made = self._both()
        while self._takes("or"):
            made = _joined(pc.or_kleene, made, self._both())
        return made

    def _both(self) -> PlainValue:
        made = self._negated()
        while self._takes("and"):
            made = _joined(pc.and_kleene, made, self._negated())
        return made

    def _negated(self) -> PlainValue:
        if self._takes("not"):
            inner = self._negated()
            return _truth(lambda table: pc.invert(inner.of(table)))
        if self._takes("("):
            inner = self._either()
            if not self._takes(")"):
                raise NotPlain("without Spark, only a whole condition can be in brackets")
            return inner
        return self._comparison()

    def _comparison(self) -> PlainValue:
        left = self._operand()
        if self._takes("is"):
            return self._is_null(left)
        sign = self._tokens[self._place] if self._place < len(self._tokens) else ""
        if sign not in _COMPARE:
            if not pa.types.is_boolean(left.field.type):
                raise NotPlain("only comparisons and booleans are conditions without Spark")
            return left
        self._place += 1
        return _compared(sign, left, self._operand())

    def _is_null(self, value: PlainValue) -> PlainValue:
        call = pc.is_valid if self._takes("not") else pc.is_null
        if not self._takes("null"):
            raise NotPlain('only "is null" and "is not null" are understood without Spark')
        return _truth(lambda table: call(value.of(table)))

    def _operand(self) -> PlainValue:
        token = self._tokens[self._place] if self._place < len(self._tokens) else ""
        constant = _constant(token)
        if constant is None and (not _NAME.match(token) or token.lower() in _WORDS):
            raise NotPlain(f"without Spark, {token or 'the end'!r} is no column and no constant")
        self._place += 1
        return constant or _column(self._schema, unquote(token))

    def _takes(self, word: str) -> bool:
        there = self._place < len(self._tokens) and self._tokens[self._place].lower() == word
        self._place += there
        return there


def _truth(of: Callable[[pa.Table], Values]) -> PlainValue:
    return PlainValue(pa.field("", pa.bool_()), of)


def _joined(
    call: Callable[[Values, Values], Values], left: PlainValue, right: PlainValue
) -> PlainValue:
    return _truth(lambda table: call(left.of(table), right.of(table)))


def _compared(sign: str, left: PlainValue, right: PlainValue) -> PlainValue:
    """Compare what Spark compares without a conversion, and as Arrow does."""
    kinds = (_family(left.field), _family(right.field))
    signs = _EQUAL if kinds[0] == "boolean" else _COMPARE
    if (left.is_constant and right.is_constant) or kinds[0] != kinds[1] or sign not in signs:
        texts = [type_text(each.field.type) for each in (left, right)]
        raise NotPlain(f'without Spark, {texts[0]} is not compared with {texts[1]} by "{sign}"')
    return _joined(_COMPARE[sign], left, right)


def _family(field: pa.Field) -> str:
    if pa.types.is_integer(field.type):
        return "integer"
    if pa.types.is_boolean(field.type):
        return "boolean"
    # A collation has an order of its own, a float a NaN of its own.
    if pa.types.is_string(field.type) and COLLATION not in (field.metadata or {}):
        return "string"
    raise NotPlain(f"without Spark, {type_text(field.type)} is not compared")
