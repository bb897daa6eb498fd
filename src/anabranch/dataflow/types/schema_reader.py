"""The parser for schema texts: a tokenizer and a recursive descent.

A column is ``name type [not null] [comment '…']``, with an optional colon before the type. What
Spark rejects is rejected here too; every error names the character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

import msgspec
import pyarrow as pa

from anabranch.dataflow.sql.sql_text import unquote
from anabranch.errors import InvalidSchema

#: Field metadata: the collation of a string column. Without it, strings compare byte by byte.
COLLATION = b"collation"
#: Field metadata: the user's comment on a column.
COMMENT = b"comment"

#: The types without parameters, by the name that ``to_ddl`` writes.
SIMPLE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
#: Other names that Spark accepts.
SYNONYMS: Mapping[str, str] = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
#: Type names of other systems, and what to use instead.
SUGGESTIONS: Mapping[str, str] = {
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "char": "string",
    "character": "string",
    "varchar": "string",
    "bytes": "binary",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "datetime": "timestamp",
}
#: All types, for messages that say what to use.
KNOWN = ", ".join([*SIMPLE, "decimal(p,s)", "array<…>", "map<…,…>", "struct<…>"])
MAX_PRECISION = 38

_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<word>[A-Za-z0-9_]+)
    | (?P<mark>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Mapping[str, str] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0"}


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    place: int


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            _fail(text, place, f"{text[place]!r} is not allowed here", "Put the name in backquotes")
        if match.lastgroup is not None:
            found.append(_Token(match.lastgroup, match.group(), place))
        place = match.end()
    return found


def _fail(text: str, place: int, what: str, do: str) -> NoReturn:
    raise InvalidSchema(
        f"The schema cannot be read: {what}",
        where=f'character {place + 1} of "{text}"',
        do=f"{do}.",
    )


class _Reader(msgspec.Struct):
    """The tokens of one text, and the position of the next."""

    text: str
    tokens: list[_Token]
    next: int = 0

    def at_end(self) -> bool:
        return self.next == len(self.tokens)

    def peek(self) -> _Token:
        if self.at_end():
            return _Token("end", "", len(self.text))
        return self.tokens[self.next]

    def take(self) -> _Token:
        token = self.peek()
        self.next = min(self.next + 1, len(self.tokens))
        return token

    def accept(self, word: str) -> bool:
        """Read this word or mark if it is next, in any case."""
        token = self.peek()
        if token.kind not in ("word", "mark") or token.text.lower() != word:
            return False
        self.next += 1
        return True

    def expect(self, word: str, wanted: str) -> None:
        if not self.accept(word):
            self.fail(self.peek(), f"expected {wanted}, {_describe(self.peek())}")

    def fail(self, token: _Token, what: str, do: str | None = None) -> NoReturn:
        _fail(self.text, token.place, what, do or 'Write columns as "name type", with commas')


def _describe(token: _Token) -> str:
    return "but the text ends" if token.kind == "end" else f"not {token.text!r}"


def read_columns(text: str) -> list[pa.Field]:
    """The columns that a schema text lists, at least one."""
    reader = _Reader(text, _tokens(text))
    if reader.at_end():
        raise InvalidSchema("The schema has no columns", do='Write e.g. "id bigint, name string".')
    columns = [_column(reader)]
    while not reader.at_end():
        reader.expect(",", "a comma or the end")
        columns.append(_column(reader))
    return columns


def _column(reader: _Reader) -> pa.Field:
    name = _name(reader)
    reader.accept(":")
    type_, metadata = _type(reader, name)
    nullable = True
    token = reader.peek()
    if reader.accept("not"):
        reader.expect("null", '"null"')
        nullable = False
        _require_values(reader, token, type_)
    if reader.accept("comment"):
        metadata = {**metadata, COMMENT: _comment(reader).encode()}
    return pa.field(name, type_, nullable=nullable, metadata=metadata or None)


def _require_values(reader: _Reader, token: _Token, type_: pa.DataType) -> None:
    """Reject ``void``, whose only value is NULL, in a place that excludes NULL."""
    if pa.types.is_null(type_):
        reader.fail(token, "void cannot be not null", "Use another type")


def _name(reader: _Reader) -> str:
    token = reader.take()
    if token.kind == "quoted" and token.text != "``":
        return unquote(token.text)
    if token.kind != "word" or token.text.isdigit():
        reader.fail(token, f"expected a column name, {_describe(token)}")
    return token.text


def _comment(reader: _Reader) -> str:
    token = reader.take()
    if token.kind != "text":
        reader.fail(token, f"expected a quoted comment, {_describe(token)}")
    mark, body = token.text[0], token.text[1:-1]
    pattern = re.compile(rf"\\(.)|{mark}{mark}", re.DOTALL)
    return pattern.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else mark, body)


def _type(reader: _Reader, name: str) -> tuple[pa.DataType, dict[bytes, bytes]]:
    """The next type, and the metadata of its field."""
    token = reader.take()
    if token.kind != "word":
        reader.fail(token, f'expected the type of column "{name}", {_describe(token)}')
    word = token.text.lower()
    word = SYNONYMS.get(word, word)
    if word == "string":
        return SIMPLE[word], _collation(reader)
    if word in SIMPLE:
        return SIMPLE[word], {}
    if word == "decimal":
        return _decimal(reader, token), {}
    if word in ("array", "map", "struct"):
        return _nested(reader, word), {}
    instead = SUGGESTIONS.get(word)
    advice = f'Use "{instead}"' if instead else f"Use one of: {KNOWN}"
    reader.fail(token, f'column "{name}" has type "{token.text}", which is not supported', advice)


def _collation(reader: _Reader) -> dict[bytes, bytes]:
    if not reader.accept("collate"):
        return {}
    token = reader.take()
    if token.kind not in ("word", "quoted"):
        reader.fail(token, f"expected a collation, {_describe(token)}")
    collation = unquote(token.text)
    return {} if collation.upper() == "UTF8_BINARY" else {COLLATION: collation.encode()}


def _decimal(reader: _Reader, token: _Token) -> pa.DataType:
    precision, scale = 10, 0
    if reader.accept("("):
        precision = _number(reader)
        if reader.accept(","):
            scale = _number(reader)
        reader.expect(")", '")"')
    if not (1 <= precision <= MAX_PRECISION and scale <= precision):
        advice = f"Use a precision of 1 to {MAX_PRECISION} and a scale up to the precision"
        reader.fail(token, f"decimal({precision},{scale}) does not exist", advice)
    return pa.decimal128(precision, scale)


def _number(reader: _Reader) -> int:
    token = reader.take()
    if not token.text.isdigit():
        reader.fail(token, f"expected a number, {_describe(token)}")
    return int(token.text)


def _nested(reader: _Reader, word: str) -> pa.DataType:
    reader.expect("<", f'"<" after {word}')
    match word:
        case "array":
            type_ = pa.list_(_member(reader, "element"))
        case "map":
            token = reader.peek()
            key_type, metadata = _type(reader, "key")
            _require_values(reader, token, key_type)
            key = pa.field("key", key_type, nullable=False, metadata=metadata or None)
            reader.expect(",", "a comma and the type of the values")
            type_ = pa.map_(key, _member(reader, "value"))
        case _:
            type_ = pa.struct(_members(reader))
    reader.expect(">", f'">" to end the {word}')
    return type_


def _member(reader: _Reader, name: str) -> pa.Field:
    type_, metadata = _type(reader, name)
    return pa.field(name, type_, metadata=metadata or None)


def _members(reader: _Reader) -> list[pa.Field]:
    if reader.peek().text == ">":
        return []
    members = [_column(reader)]
    while reader.accept(","):
        token = reader.peek()
        member = _column(reader)
        if any(member.name.lower() == other.name.lower() for other in members):
            reader.fail(token, f'the struct has two fields "{member.name}"', "Rename one of them")
        members.append(member)
    return members
