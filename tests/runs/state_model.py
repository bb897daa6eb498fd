"""A plain model of state for tests: keys of every kind, a weak hash, rows as Python values."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.records.bins import Hashes
from anabranch.records.layout import Layout
from anabranch.runs.changes import KeyChanges
from anabranch.runs.rows import group_keys

Key: TypeAlias = tuple[Any, ...]

VALUES = pa.schema([("n", pa.int64()), ("s", pa.float64())])

_DAY = dt.date(2024, 2, 29)
_TIME = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

#: Few values each, so that random steps meet the same key again.
PLAIN: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 7, 2**63 - 1]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "string": (pa.string(), ["", "a", "b", "ab", "é", "a\0", "z" * 40]),
    "binary": (pa.binary(), [b"", b"\x00", b"a", b"\xff\xfe"]),
    "bool": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [_DAY, _DAY.replace(year=1968), _DAY.replace(day=1)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [_TIME, _TIME.replace(year=1950, day=1)]),
    "timestamp_ntz": (pa.timestamp("us"), [_TIME.replace(tzinfo=None)]),
    "decimal": (pa.decimal128(12, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("12.34")]),
}


def key_schema(*kinds: str) -> pa.Schema:
    """Key columns of these kinds; ``struct`` has a struct of its own inside."""
    return pa.schema([(f"c{at}", _type(kind)) for at, kind in enumerate(kinds)])


def _type(kind: str) -> pa.DataType:
    if kind == "struct":
        inner = pa.struct([("x", pa.string()), ("y", pa.int64())])
        return pa.struct([("a", pa.int64()), ("b", inner)])
    return PLAIN[kind][0]


def _value(kind: str) -> st.SearchStrategy[Any]:
    if kind == "struct":
        inner = st.fixed_dictionaries({"x": _value("string"), "y": _value("int64")})
        whole = st.fixed_dictionaries({"a": _value("int64"), "b": st.none() | inner})
        return st.none() | whole
    return st.none() | st.sampled_from(PLAIN[kind][1])


#: Key columns as tests combine them.
KINDS: list[tuple[str, ...]] = [
    *((kind,) for kind in PLAIN),
    ("struct",),
    ("string", "int64"),
    ("int64", "struct", "bool"),
]


def keys_of(kinds: Sequence[str]) -> st.SearchStrategy[Key]:
    """Random keys with these columns, NULL among them."""
    return st.tuples(*(_value(kind) for kind in kinds))


def frozen(value: Any) -> Any:
    """A key as something a dict can hold: structs become tuples."""
    if isinstance(value, Mapping):
        return ("struct", *((name, frozen(part)) for name, part in sorted(value.items())))
    if isinstance(value, tuple | list):
        return tuple(frozen(part) for part in value)
    return value


def weak_hash(key: Key, space: int) -> int:
    """One of ``space`` hashes, spread over the bins: a small space makes keys collide.

    Some differ in the lowest bits alone, which the fast sort cannot see.
    """
    drawn = zlib.crc32(repr(frozen(key)).encode())
    return (drawn % space) * (2**64 // space) + (drawn >> 16) % 2


def hashes_of(keys: Sequence[Key], space: int) -> Hashes:
    return np.array([weak_hash(key, space) for key in keys], dtype=np.uint64)


def batch_of(keys: Sequence[Key], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([key[at] for key in keys], column.type) for at, column in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def chunked(batch: pa.RecordBatch, cut: int) -> pa.Table:
    """The same rows as a table in two chunks that are slices of larger arrays."""
    padded = pa.concat_tables([pa.Table.from_batches([batch])] * 2)
    whole = padded.combine_chunks().slice(batch.num_rows)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def changed_of(
    layout: Layout, changes: Mapping[Key, tuple[Any, ...] | None], keys: Sequence[Key], space: int
) -> KeyChanges:
    """A step's changes by frozen key, in the order of ``keys``; None is forgotten."""
    rows = [changes[frozen(key)] for key in keys]
    blank = (None,) * len(layout.values)
    return KeyChanges(
        hashes_of(keys, space),
        batch_of(keys, layout.keys),
        batch_of([row or blank for row in rows], layout.values),
        np.array([row is None for row in rows], dtype=np.bool_),
    )


def sorted_query(
    layout: Layout, keys: Sequence[Key], space: int
) -> tuple[Hashes, pa.RecordBatch, list[Any]]:
    """Unique keys sorted for a look-up, and what each is in the model."""
    groups = group_keys(hashes_of(keys, space), batch_of(keys, layout.keys))
    return (
        groups.hashes,
        groups.keys,
        [frozen(tuple(row.values())) for row in to_dicts(groups.keys)],
    )


def to_dicts(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    return list(rows.to_pylist())


def scanned(layout: Layout, table: pa.Table) -> dict[Any, tuple[Any, ...]]:
    """A scan as the model: frozen key to values. Fails on a key that occurs twice."""
    found: dict[Any, tuple[Any, ...]] = {}
    for row in to_dicts(table):
        parts = list(row.values())
        key = frozen(tuple(parts[at] for at in layout.key_columns))
        assert key not in found, key
        found[key] = tuple(parts[at] for at in layout.value_columns)
    return found


def in_one_buffer(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> tuple[pa.Buffer, list[pa.RecordBatch]]:
    """The bytes of an Arrow IPC file with these batches, and the batches as they lie in it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data = sink.getvalue()
    reader = pa.ipc.open_file(data)
    return data, [reader.get_batch(number) for number in range(reader.num_record_batches)]
