"""The key types: those with exact equality and a single byte representation."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from anabranch.dataflow.findings import Finding
from anabranch.dataflow.types.schema import COLLATION, type_text

_KEY_TYPES = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)


def key_findings(key: pa.Field) -> list[Finding]:
    """Why a field cannot be a key or part of one; one finding per nested field."""
    return list(_refusals(key, key.name))


def _refusals(field: pa.Field, path: str) -> Iterator[Finding]:
    type_ = field.type
    if pa.types.is_struct(type_):
        if type_.num_fields == 0:
            yield Finding(f'key "{path}" is a struct without fields', "Give it a field.")
        for member in type_:
            yield from _refusals(member, f"{path}.{member.name}")
    elif pa.types.is_string(type_) and COLLATION in (field.metadata or {}):
        collation = field.metadata[COLLATION].decode()
        yield Finding(
            f'key "{path}" is a string with collation {collation}, which cannot be a key',
            f"Use binary collation, e.g. {path} collate UTF8_BINARY, or lower({path}).",
        )
    elif not any(allows(type_) for allows in _KEY_TYPES):
        yield Finding(
            f'key "{path}" has type {type_text(type_)}, which cannot be a key',
            _instead(type_, path),
        )


def _instead(type_: pa.DataType, path: str) -> str:
    if pa.types.is_floating(type_):
        return f"Floats are not exactly equal: use e.g. cast({path} as decimal(18,2))."
    if pa.types.is_nested(type_):
        return f"Use one of its elements, or a text such as to_json({path})."
    if pa.types.is_null(type_):
        return f"Give it a type, e.g. cast({path} as string)."
    return f"Cast it, e.g. cast({path} as bigint) or cast({path} as string)."
