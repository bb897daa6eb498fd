"""The columns of a run: hash, key, sub-key, value, expiry, blob, tombstone, due order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import InvalidSchema

HASH = "hash"
EXPIRY = "expiry"
BLOB = "blob"
TOMBSTONE = "tombstone"
DUE_ORDER = "due_order"
KEY_PREFIX = "k_"
SUBKEY_PREFIX = "s_"
VALUE_PREFIX = "v_"

#: Nanoseconds since the epoch; NULL is never.
EXPIRY_TYPE = pa.int64()
#: The file of a value that is too large for a run, with its size and CRC-32.
BLOB_TYPE = pa.struct([("name", pa.string()), ("bytes", pa.int64()), ("checksum", pa.string())])
#: A place among the rows of a bin. Its bytes must stay below 2 GiB, so it has fewer rows.
DUE_ORDER_TYPE = pa.int32()

_NONE = pa.schema([])


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one operator's state: keys and values.

    With ``subkeys`` a key has many *entries*, each with its own sub-key and value. The sub-keys of
    a map are the user's keys; those of a list are the step and the place in it, so that appending
    needs no look-up. With ``expires`` each row has an expiry time. With ``blobs`` the values of a
    row may be in their own file. With ``dues`` rows can be found by their expiry: it is the time at
    which they fall due.

    A run's columns are ``hash``, ``k_<name>`` for keys, ``s_<name>`` for sub-keys, ``v_<name>`` for
    values, ``expiry``, ``blob``, ``tombstone`` and ``due_order``; sub-keys, expiry, blob and due
    order only if the layout has them. The due order is an index: the n-th row of a bin says which
    row of the bin falls due as the n-th. Names of keys, sub-keys and values may therefore coincide.
    Every key, sub-key and value column and every field in it is nullable, whatever the given
    schemas say. A NULL key is a key like any other; a tombstone's values are NULL.
    """

    keys: pa.Schema
    values: pa.Schema
    subkeys: pa.Schema = field(default_factory=lambda: _NONE)
    expires: bool = False
    blobs: bool = False
    dues: bool = False
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        """Reject keys that cannot be compared exactly, then set the columns."""
        check_key_types(self.keys)
        if self.dues and not self.expires:
            raise InvalidSchema("rows fall due by their expiry, and this layout has none")
        if len(self.subkeys):
            check_key_types(self.subkeys)
        for column in self.values:
            if pa.types.is_dictionary(column.type):
                raise InvalidSchema(
                    f"state column {column.name!r} is dictionary-encoded",
                    do="Cast it to the type of its values.",
                )
        for part in ("keys", "subkeys", "values"):
            fields = [pa.field(f.name, nullable(f.type)) for f in getattr(self, part)]
            object.__setattr__(self, part, pa.schema(fields))
        object.__setattr__(self, "schema", self._schema())

    def _schema(self) -> pa.Schema:
        prefixed = [
            pa.field(prefix + column.name, column.type)
            for prefix, part in (
                (KEY_PREFIX, self.keys),
                (SUBKEY_PREFIX, self.subkeys),
                (VALUE_PREFIX, self.values),
            )
            for column in part
        ]
        return pa.schema(
            [
                pa.field(HASH, pa.uint64(), nullable=False),
                *prefixed,
                *([pa.field(EXPIRY, EXPIRY_TYPE)] if self.expires else []),
                *([pa.field(BLOB, BLOB_TYPE)] if self.blobs else []),
                pa.field(TOMBSTONE, pa.bool_(), nullable=False),
                *([pa.field(DUE_ORDER, DUE_ORDER_TYPE)] if self.dues else []),
            ]
        )

    @property
    def has_subkeys(self) -> bool:
        """Whether a key has many entries."""
        return len(self.subkeys) > 0

    @property
    def key_columns(self) -> list[int]:
        """The indices of the key columns in a run."""
        return list(range(1, 1 + len(self.keys)))

    @property
    def subkey_columns(self) -> list[int]:
        """The indices of the sub-key columns in a run."""
        first = 1 + len(self.keys)
        return list(range(first, first + len(self.subkeys)))

    @property
    def identity_columns(self) -> list[int]:
        """The indices of key and sub-key columns: a run has one row for each combination."""
        return self.key_columns + self.subkey_columns

    @property
    def value_columns(self) -> list[int]:
        """The indices of the value columns in a run."""
        first = 1 + len(self.keys) + len(self.subkeys)
        return list(range(first, first + len(self.values)))

    @property
    def payload_columns(self) -> list[int]:
        """The indices of the value columns, and of expiry and blob if present."""
        return list(range(1 + len(self.identity_columns), self.tombstone_column))

    @property
    def expiry_column(self) -> int:
        """The index of the expiry column, if the layout has one."""
        return 1 + len(self.identity_columns) + len(self.values)

    @property
    def blob_column(self) -> int:
        """The index of the blob column, if the layout has one."""
        return self.expiry_column + self.expires

    @property
    def tombstone_column(self) -> int:
        """The index of the tombstone column."""
        return len(self.schema) - 1 - self.dues

    @property
    def due_column(self) -> int:
        """The index of the due order, if the layout has one."""
        return len(self.schema) - 1


def may_be_large(values: pa.Schema) -> bool:
    """Whether rows of these columns have no size limit, so that the layout needs blobs.

    >>> may_be_large(pa.schema([("n", pa.int64())])), may_be_large(pa.schema([("s", pa.string())]))
    (False, True)
    """
    return any(_varies(column.type) for column in values)


def _varies(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_varies(part.type) for part in kind)
    return not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with every nested field nullable, so that types compare regardless of that."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, nullable(part.type)) for part in kind])
    if types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    if types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    return kind


def check_key_types(keys: pa.Schema) -> None:
    """Raise ``InvalidSchema`` unless all key columns, at least one, can be compared exactly."""
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
