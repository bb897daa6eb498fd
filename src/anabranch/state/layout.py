"""The columns of a run: hash, key, value, tombstone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import InvalidSchema

HASH = "hash"
TOMBSTONE = "tombstone"
KEY_PREFIX = "k_"
VALUE_PREFIX = "v_"


@dataclass(frozen=True, slots=True)
class Layout:
    """What one operator keeps per key: the key's columns and the value's.

    A run's columns are ``hash``, the key columns as ``k_<name>``, the value columns as
    ``v_<name>`` and ``tombstone``: names of keys and values may therefore coincide. Every key and
    value column and every field in it may hold NULL, whatever the given schemas say; a NULL key is
    a key like any other, and a tombstone's values are NULL.
    """

    keys: pa.Schema
    values: pa.Schema
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        """Refuse keys that cannot be compared exactly, then fix the columns."""
        check_key_types(self.keys)
        for column in self.values:
            if pa.types.is_dictionary(column.type):
                raise InvalidSchema(
                    f"state column {column.name!r} is dictionary-encoded",
                    do="Cast it to the type of its values.",
                )
        for part in ("keys", "values"):
            fields = [pa.field(f.name, nullable(f.type)) for f in getattr(self, part)]
            object.__setattr__(self, part, pa.schema(fields))
        object.__setattr__(
            self,
            "schema",
            pa.schema(
                [
                    pa.field(HASH, pa.uint64(), nullable=False),
                    *(pa.field(KEY_PREFIX + column.name, column.type) for column in self.keys),
                    *(pa.field(VALUE_PREFIX + column.name, column.type) for column in self.values),
                    pa.field(TOMBSTONE, pa.bool_(), nullable=False),
                ]
            ),
        )

    @property
    def key_columns(self) -> list[int]:
        """Where the key columns stand in a run."""
        return list(range(1, 1 + len(self.keys)))

    @property
    def value_columns(self) -> list[int]:
        """Where the value columns stand in a run."""
        first = 1 + len(self.keys)
        return list(range(first, first + len(self.values)))

    @property
    def tombstone_column(self) -> int:
        """Where the tombstone stands in a run."""
        return 1 + len(self.keys) + len(self.values)


def nullable(kind: pa.DataType) -> pa.DataType:
    """The same type with every field inside it allowed to be NULL: types then compare as meant."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, nullable(part.type)) for part in kind])
    if types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    if types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    return kind


def check_key_types(keys: pa.Schema) -> None:
    """Raise ``InvalidSchema`` unless there are key columns and all can be compared exactly."""
    if not len(keys):
        raise InvalidSchema("a key needs at least one column")
    for column in keys:
        _check_key_type(column.name, column.type)


def _check_key_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_struct(kind):
        for part in kind:
            _check_key_type(f"{name}.{part.name}", part.type)
    elif not _is_plain_key(kind):
        raise InvalidSchema(
            f"key column {name!r} has type {kind}, whose values cannot be compared exactly",
            do="Use integers, strings, binary, booleans, dates, timestamps, decimals or structs"
            " of these; cast the column at key_by.",
        )


def _is_plain_key(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_decimal128(kind)
    )
