"""Rows as operators see them: value columns with their key and order."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.operators.order.row_order import Int64s, RowOrder, concatenate
from anabranch.records.bins import Hashes, Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups, LookupResult, group_keys


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows of one stream.

    ``hashes`` and ``keys`` are set inside a region and None outside; ``order`` is set if an
    operator downstream needs it. ``times`` are the rows' event times, None if they have none.
    ``fired`` marks the rows that notifications upstream have made; None if none are.
    """

    values: pa.Table
    hashes: Hashes | None = None
    keys: pa.Table | None = None
    order: RowOrder | None = None
    times: Int64s | None = None
    fired: Mask | None = None

    def __len__(self) -> int:
        return int(self.values.num_rows)

    def children(self, values: pa.Table, parents: Int64s, digits: Int64s) -> Rows:
        """Output rows with the key and order of their parents: row *i* is the ``digits[i]``th."""
        return Rows(
            values,
            None if self.hashes is None else self.hashes[parents],
            None if self.keys is None else self.keys.take(pa.array(parents)),
            None if self.order is None else self.order.child(parents, digits),
            None if self.times is None else self.times[parents],
            None if self.fired is None else self.fired[parents],
        )

    def take(self, places: Int64s) -> Rows:
        """The rows at these places."""
        return Rows(
            self.values.take(pa.array(places)),
            None if self.hashes is None else self.hashes[places],
            None if self.keys is None else self.keys.take(pa.array(places)),
            None if self.order is None else self.order.take(places),
            None if self.times is None else self.times[places],
            None if self.fired is None else self.fired[places],
        )


def concat_batches(parts: Sequence[Rows]) -> Rows:
    """Concatenate batches of one stream."""
    if len(parts) == 1:
        return parts[0]
    hashes = [part.hashes for part in parts if part.hashes is not None]
    keys = [part.keys for part in parts if part.keys is not None]
    orders = [part.order for part in parts if part.order is not None]
    times = [part.times for part in parts if part.times is not None]
    return Rows(
        pa.concat_tables([part.values for part in parts]),
        np.concatenate(hashes) if len(hashes) == len(parts) else None,
        pa.concat_tables(keys) if len(keys) == len(parts) else None,
        concatenate(orders) if len(orders) == len(parts) else None,
        np.concatenate(times) if len(times) == len(parts) else None,
        _concat_fired(parts),
    )


def concat_some(parts: Sequence[Rows]) -> Rows | None:
    """Concatenate those batches of one stream that have rows; None if none has."""
    some = [part for part in parts if len(part)]
    return concat_batches(some) if some else None


def _concat_fired(parts: Sequence[Rows]) -> Mask | None:
    if all(part.fired is None for part in parts):
        return None
    masks = (np.zeros(len(p), np.bool_) if p.fired is None else p.fired for p in parts)
    return np.concatenate(list(masks))


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """A step's rows grouped by key, the rows of a key in their order.

    ``values`` are the rows in this order; ``parents`` are their places in the batch.
    """

    groups: Groups
    parents: Int64s
    values: pa.Table


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Some keys with their rows: half-open ranges of group and row numbers."""

    first_group: int
    last_group: int
    first_row: int
    last_row: int


def group_rows(rows: Rows) -> KeyRows:
    """Group the rows of a region by key."""
    assert rows.hashes is not None
    assert rows.keys is not None
    places = None if rows.order is None else rows.order.permutation()
    hashes, keys = rows.hashes, rows.keys
    if places is not None:
        hashes, keys = hashes[places], keys.take(pa.array(places))
    groups = group_keys(hashes, keys)
    parents = groups.order if places is None else places[groups.order]
    return KeyRows(groups, parents, rows.values.take(pa.array(parents)))


def split_groups(starts: Int64s, rows: int, size: int) -> Iterator[RowSpan]:
    """Split the groups into parts of about ``size`` rows; a larger group is a part by itself."""
    ends = np.append(starts[1:], rows)
    group = 0
    while group < len(starts):
        begin = int(starts[group])
        last = max(int(np.searchsorted(ends, begin + size, side="right")), group + 1)
        yield RowSpan(group, last, begin, int(ends[last - 1]))
        group = last


class KeyedEntries(Protocol):
    """An operator's state before the step, looked up by sorted, unique keys."""

    @property
    def now_ns(self) -> int:
        """The clock of the step."""
        ...

    @property
    def step(self) -> int:
        """The number of the step."""
        ...

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        """Whether each key has state, and the state's columns, NULL for keys without state."""
        ...

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """Look up keys, with their expiry and with which of them a write still counts as held."""
        ...

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        """All entries of each key, if the state has sub-keys."""
        ...


@dataclass(frozen=True, slots=True)
class StateChanges:
    """The changes of an operator's state, and which of the keys (or entries) had state before.

    If state expires, ``found`` is ``LookupResult.present``. If None, the write looks it up.
    """

    changed: KeyChanges
    found: Mask | None


def concat_changes(parts: Sequence[StateChanges]) -> StateChanges:
    """Concatenate changes of different keys."""
    if len(parts) == 1:
        return parts[0]
    changed = [part.changed for part in parts]
    found = [part.found for part in parts if part.found is not None]
    subkeys = [_table(each.subkeys) for each in changed if each.subkeys is not None]
    expiry = [each.expiry for each in changed if each.expiry is not None]
    return StateChanges(
        KeyChanges(
            np.concatenate([each.hashes for each in changed]),
            pa.concat_tables([_table(each.keys) for each in changed]),
            pa.concat_tables([_table(each.values) for each in changed]),
            np.concatenate([each.tombstone for each in changed]),
            pa.concat_tables(subkeys) if subkeys else None,
            pa.chunked_array([chunk for each in expiry for chunk in _chunks(each)])
            if expiry
            else None,
        ),
        np.concatenate(found) if len(found) == len(parts) else None,
    )


def expiry_times(count: int, now_ns: int, ttl_ns: int | None) -> pa.Array | None:
    """When ``count`` rows written now expire; None without a time-to-live."""
    return None if ttl_ns is None else pa.array(np.full(count, now_ns + ttl_ns, dtype=np.int64))


def state_expiry(
    ttl_ns: int | None, clock: Clock, now_ns: int, times: Int64s | None, count: int
) -> pa.Array | None:
    """When the states of ``count`` keys expire; None without a time-to-live.

    By event time it counts from ``times``, the latest of each key's rows; else from the step's
    clock.
    """
    if ttl_ns is None or clock == "step":
        return expiry_times(count, now_ns, ttl_ns)
    assert times is not None
    return pa.array(times + ttl_ns // 1000)


def _table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def column_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column as Python values, the fast way if its type has one."""
    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if plain and column.null_count == 0:
        return cast("list[Any]", column.to_numpy().tolist())
    return cast("list[Any]", column.to_pylist())


def named_tuples(name: str, columns: pa.Table | pa.RecordBatch) -> Iterator[Any]:
    """Each row as a named tuple with the columns' names."""
    kind = tuple_type(name, tuple(columns.schema.names))
    if not columns.schema.names:
        return iter([kind()] * columns.num_rows)
    # ``kind._make`` is a Python function around this and would cost as much as the rest.
    make = partial(tuple.__new__, kind)
    return map(make, zip(*(column_values(c) for c in columns.columns), strict=True))


@lru_cache
def tuple_type(name: str, names: tuple[str, ...]) -> type[Any]:
    """A named tuple type; a column whose name is not usable is called by its place."""
    fields: list[tuple[str, Any]] = [
        (column if _fits(column, names) else f"column_{i}", Any) for i, column in enumerate(names)
    ]
    return cast("type[Any]", NamedTuple(name, fields))


def _fits(column: str, names: tuple[str, ...]) -> bool:
    usable = column.isidentifier() and not keyword.iskeyword(column)
    return usable and not column.startswith("_") and names.count(column) == 1
