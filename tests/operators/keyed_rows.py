"""Rows with keys for the tests of operators, and a state that is a plain dictionary."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows, StateChanges
from anabranch.runs.entries import Entries
from anabranch.runs.rows import LookupResult


def frozen(value: Any) -> Any:
    """A value that can be a key of a dictionary."""
    if isinstance(value, dict):
        return tuple((name, frozen(part)) for name, part in value.items())
    return value


def hash_of(key: Sequence[Any], spread: int) -> int:
    """A hash with only so many values: the fewer, the more keys collide."""
    number = zlib.crc32(repr(key).encode()) % spread
    return number * 0x9E3779B97F4A7C15 % 2**64


def make_rows(
    keys: Sequence[Sequence[Any]],
    key_schema: pa.Schema,
    values: pa.Table,
    *,
    spread: int = 1 << 32,
    order: Sequence[int] | None = None,
) -> Rows:
    """Rows of a region; ``order`` gives the reader's last column, None leaves rows unordered."""
    table = pa.table(
        [
            pa.array([key[i] for key in keys], type=column.type)
            for i, column in enumerate(key_schema)
        ],
        schema=key_schema,
    )
    hashes = np.array([hash_of(key, spread) for key in key_tuples(table)], dtype=np.uint64)
    given = None
    if order is not None:
        zeros = np.zeros(len(keys), dtype=np.int64)
        given = RowOrder((zeros, zeros, np.array(order, dtype=np.int64)))
    return Rows(values, hashes, table, given)


class DictState:
    """An operator's state as a dictionary, for comparison with what runs would keep."""

    def __init__(self, values: pa.Schema) -> None:
        self.values = values
        self.kept: dict[Any, tuple[Any, ...]] = {}

    def lookup(
        self, hashes: np.ndarray[Any, Any], keys: pa.RecordBatch
    ) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
        assert np.all(hashes[1:] >= hashes[:-1])
        wanted = key_tuples(keys)
        assert len(set(wanted)) == len(wanted)
        rows = [self.kept.get(key) for key in wanted]
        nothing = (None,) * len(self.values)
        columns = [
            pa.array([(row or nothing)[i] for row in rows], type=column.type)
            for i, column in enumerate(self.values)
        ]
        found = np.array([row is not None for row in rows], dtype=np.bool_)
        return found, pa.RecordBatch.from_arrays(columns, schema=self.values)

    @property
    def now_ns(self) -> int:
        return 0

    @property
    def step(self) -> int:
        return 1

    def find(self, hashes: np.ndarray[Any, Any], keys: pa.RecordBatch) -> LookupResult:
        found, values = self.lookup(hashes, keys)
        return LookupResult(found, found, values)

    def entries(self, hashes: Any, keys: pa.RecordBatch) -> Entries:
        raise AssertionError("this state has no entries")

    def write(self, changes: StateChanges) -> None:
        """Keep what an operator changed; it must have known what was there before."""
        changed = changes.changed
        assert changed.values.schema.types == self.values.types
        keys = key_tuples(changed.keys)
        assert changes.found is not None
        assert changes.found.tolist() == [key in self.kept for key in keys]
        columns = [column.to_pylist() for column in changed.values.columns]
        for place, (key, gone) in enumerate(zip(keys, changed.tombstone.tolist(), strict=True)):
            if gone:
                self.kept.pop(key, None)
            else:
                self.kept[key] = tuple(column[place] for column in columns)


def key_tuples(keys: pa.Table | pa.RecordBatch) -> list[Any]:
    """The keys as values that a dictionary takes."""
    columns = [column.to_pylist() for column in keys.columns]
    return [tuple(map(frozen, parts)) for parts in zip(*columns, strict=True)]
