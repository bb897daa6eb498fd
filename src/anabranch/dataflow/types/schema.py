"""Conversion between Spark's schema texts (DDL) and Arrow schemas.

Arrow is the type system of the pure rooms. Each Spark type is one Arrow type, so text → schema →
text is lossless: ``timestamp`` is ``timestamp("us", tz="UTC")``, ``timestamp_ntz`` is
``timestamp("us")``. A field's comment and a string's collation are in the field's metadata, under
``COMMENT`` and ``COLLATION``.

Types that a step cannot carry (``interval``, ``time``, ``variant``, ``char`` and the like) are
rejected by name.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from anabranch.dataflow.sql.sql_text import quote_if_needed, sql_literal
from anabranch.dataflow.types.schema_reader import COLLATION, COMMENT, KNOWN, SIMPLE, read_columns
from anabranch.errors import InvalidSchema

__all__ = ["COLLATION", "COMMENT", "parse_schema", "to_ddl", "type_text", "type_to_ddl"]

_DDL_OF: Mapping[pa.DataType, str] = {type_: name for name, type_ in SIMPLE.items()}


def parse_schema(text: str) -> pa.Schema:
    """Parse a column list such as ``"customer string, amount decimal(10,2)"``.

    Types are case-insensitive; names keep their case. ``InvalidSchema`` names the position.

    >>> parse_schema("id bigint not null, tags array<string>").names
    ['id', 'tags']
    """
    if not isinstance(text, str):
        raise TypeError(f"a schema is a text such as 'id bigint', not {type(text).__name__}")
    return pa.schema(read_columns(text))


def to_ddl(schema: pa.Schema) -> str:
    """The column list that ``parse_schema`` and Spark parse into this schema.

    >>> to_ddl(parse_schema("id LONG not null, `unit price` dec(10,2)"))
    'id bigint not null, `unit price` decimal(10,2)'
    """
    return ", ".join(_field_ddl(column, " ") for column in schema)


def type_to_ddl(type_: pa.DataType) -> str:
    """Spark's name of an Arrow type; ``InvalidSchema`` if a step cannot carry it.

    >>> type_to_ddl(pa.list_(pa.int32()))
    'array<int>'
    """
    if type_ in _DDL_OF:
        return _DDL_OF[type_]
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{_collated(type_.value_field)}>"
    if pa.types.is_map(type_):
        return f"map<{_collated(type_.key_field)},{_collated(type_.item_field)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(_field_ddl(member, ':') for member in type_)}>"
    raise InvalidSchema(f"Type {type_} is not supported", do=f"Use {_replacement(type_)}.")


def type_text(type_: pa.DataType) -> str:
    """The type's name for messages: Spark's if there is one, else Arrow's."""
    try:
        return type_to_ddl(type_)
    except InvalidSchema:
        return str(type_)


def _replacement(type_: pa.DataType) -> str:
    """The type to use instead of an unsupported one."""
    checks = (
        (pa.types.is_large_string, "string"),
        (pa.types.is_string_view, "string"),
        (pa.types.is_large_binary, "binary"),
        (pa.types.is_binary_view, "binary"),
        (pa.types.is_fixed_size_binary, "binary"),
        (pa.types.is_large_list, "a list"),
        (pa.types.is_fixed_size_list, "a list"),
        (pa.types.is_uint64, "decimal(20,0)"),
        (pa.types.is_unsigned_integer, "the next wider signed integer"),
        (pa.types.is_float16, "float"),
        (pa.types.is_date64, "date32"),
        (pa.types.is_timestamp, 'timestamp("us", tz="UTC") or timestamp("us")'),
        (pa.types.is_dictionary, "the type of its values"),
        (pa.types.is_duration, "bigint (a number of microseconds, say)"),
        (pa.types.is_time, "bigint (microseconds since midnight, say)"),
    )
    return next((instead for check, instead in checks if check(type_)), f"one of: {KNOWN}")


def _field_ddl(column: pa.Field, separator: str) -> str:
    rest = "" if column.nullable else " not null"
    comment = (column.metadata or {}).get(COMMENT)
    if comment is not None:
        rest += f" comment {sql_literal(comment.decode())}"
    return f"{quote_if_needed(column.name)}{separator}{_collated(column)}{rest}"


def _collated(column: pa.Field) -> str:
    collation = (column.metadata or {}).get(COLLATION)
    base = type_to_ddl(column.type)
    return base if collation is None else f"{base} collate {collation.decode()}"
