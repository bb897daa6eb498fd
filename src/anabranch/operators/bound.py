"""Bound handles: the state of the keys of one step, as a user's class reads and changes it.

All keys of the step are looked up at once, on the first access. The changes of each handle become
one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import ListState, MapState, ValueState
from anabranch.operators.codec import StateCodec
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import KeyedEntries, StateChanges, expiry_times
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups, LookupResult
from anabranch.runs.sorted_rows import concat_rows

LIST_PLACE = pa.schema([pa.field("step", pa.int64()), pa.field("place", pa.int64())])
"""The sub-key of a list item: the step in which it was appended, and its number in the step."""


@dataclass(slots=True)
class Cursor:
    """The place of the key being processed, shared by all handles."""

    place: int = 0


@dataclass(frozen=True, slots=True)
class HandleContext:
    """What a bound handle needs: its state, the step's keys, the cursor, codec and time-to-live."""

    view: KeyedEntries
    groups: Groups
    cursor: Cursor
    codec: StateCodec
    ttl_ns: int | None

    def changes(
        self,
        places: Int64s,
        values: Sequence[Any],
        gone: Mask,
        subkeys: pa.RecordBatch | pa.Table | None = None,
    ) -> KeyChanges:
        """The changes that set these values, or delete them, for the keys at these places."""
        return KeyChanges(
            self.groups.hashes[places],
            self.groups.keys.take(pa.array(places)),
            pa.RecordBatch.from_arrays(self.codec.encode(values), schema=self.codec.schema),
            gone,
            subkeys,
            expiry_times(len(places), self.view.now_ns, self.ttl_ns),
        )

    def entries(self) -> Entries:
        """All entries of all keys."""
        return self.view.entries(self.groups.hashes, self.groups.keys)

    def decode(self, values: pa.RecordBatch) -> list[Any]:
        """The values of entries."""
        return self.codec.decode(values, np.ones(values.num_rows, np.bool_))

    def restore(self, values: list[Any], entries: Entries, place: int) -> None:
        """Replace a key's values by those of its entries: they may have been changed in place."""
        first, last = entries.offsets[place : place + 2].tolist()
        values[first:last] = self.decode(entries.values.slice(first, last - first))

    def normalizer(self) -> Callable[[Any], Any]:
        """Converts a value just set to the form that later steps read."""
        return self.codec.normalizer() or _unchanged


class BoundValue(ValueState):
    """A value per key."""

    def __init__(self, context: HandleContext) -> None:
        self._context = context
        self._normalize = context.normalizer()
        self._values: list[Any] | None = None
        self._held: LookupResult | None = None
        self._touched: dict[int, None] = {}

    def get(self) -> Any:
        """The key's value, None if it has none."""
        return self._load()[self._context.cursor.place]

    def set(self, value: Any) -> None:
        """Set the key's value; None forgets it."""
        place = self._context.cursor.place
        self._load()[place] = self._normalize(value)
        self._touched[place] = None

    def clear(self) -> None:
        """Forget the key's value."""
        self.set(None)

    def changes(self) -> StateChanges | None:
        """The values that were set."""
        if not self._touched:
            return None
        places = np.fromiter(self._touched, np.int64, len(self._touched))
        values = [self._load()[place] for place in self._touched]
        gone = np.array([value is None for value in values], dtype=np.bool_)
        assert self._held is not None
        return StateChanges(self._context.changes(places, values, gone), self._held.present[places])

    def has_state(self, place: int) -> bool:
        """Whether the key at a place has a value."""
        return self._load()[place] is not None

    def check(self, place: int) -> None:
        """Raise if the value does not fit."""
        if place in self._touched:
            self._context.codec.encode([self._load()[place]])

    def undo(self, place: int) -> None:
        """Restore the value, which may have been changed in place."""
        self._touched.pop(place, None)
        if self._held is not None and self._values is not None:
            found = self._held.found[place : place + 1]
            before = self._context.codec.decode(self._held.values.slice(place, 1), found)
            self._values[place] = before[0]

    def _load(self) -> list[Any]:
        if self._values is None:
            groups = self._context.groups
            self._held = self._context.view.find(groups.hashes, groups.keys)
            self._values = self._context.codec.decode(self._held.values, self._held.found)
        return self._values


class BoundList(ListState):
    """A list per key."""

    def __init__(self, context: HandleContext) -> None:
        self._context = context
        self._normalize = context.normalizer()
        self._entries: Entries | None = None
        self._values: list[Any] = []
        self._appended: dict[int, list[Any]] = {}
        self._cleared: dict[int, None] = {}

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        place, value = self._context.cursor.place, self._normalize(value)
        self._appended.setdefault(place, []).append(value)

    def get(self) -> list[Any]:
        """All values, in the order in which they were appended."""
        place = self._context.cursor.place
        new = self._appended.get(place, [])
        if place in self._cleared:
            return list(new)
        offsets = self._load().offsets
        return self._values[offsets[place] : offsets[place + 1]] + new

    def clear(self) -> None:
        """Forget all values."""
        self._cleared[self._context.cursor.place] = None
        self._appended.pop(self._context.cursor.place, None)

    def changes(self) -> StateChanges | None:
        """The appended values, and tombstones of the cleared ones."""
        gone, subkeys = self._cleared_entries()
        lengths = [len(values) for values in self._appended.values()]
        places = np.repeat(np.fromiter(self._appended, np.int64, len(lengths)), lengths)
        if not len(gone) and not len(places):
            return None
        values = [value for each in self._appended.values() for value in each]
        every = np.concatenate([gone, places])
        dead = np.arange(len(every)) < len(gone)
        subkeys.append(self._new_subkeys(lengths))
        changed = self._context.changes(
            every, [None] * len(gone) + values, dead, concat_rows(LIST_PLACE, subkeys)
        )
        return StateChanges(changed, dead)

    def has_state(self, place: int) -> bool:
        """Whether the key at a place has any value."""
        if self._appended.get(place) or place in self._cleared:
            return bool(self._appended.get(place))
        offsets = self._load().offsets
        return bool(offsets[place] < offsets[place + 1])

    def check(self, place: int) -> None:
        """Raise if an appended value does not fit."""
        if place in self._appended:
            self._context.codec.encode(self._appended[place])

    def undo(self, place: int) -> None:
        """Restore the list, whose values may have been changed in place."""
        self._appended.pop(place, None)
        self._cleared.pop(place, None)
        if self._entries is not None:
            self._context.restore(self._values, self._entries, place)

    def _cleared_entries(self) -> tuple[Int64s, list[pa.RecordBatch]]:
        """The place of the key of each cleared value, and the sub-keys of the values."""
        if not self._cleared:
            return np.empty(0, dtype=np.int64), []
        entries = self._load()
        cleared = np.isin(entries.places, np.fromiter(self._cleared, np.int64, len(self._cleared)))
        return entries.places[cleared], [entries.subkeys.filter(pa.array(cleared))]

    def _new_subkeys(self, lengths: Sequence[int]) -> pa.RecordBatch:
        numbers = [np.arange(length, dtype=np.int64) for length in lengths]
        place = np.concatenate([np.empty(0, dtype=np.int64), *numbers])
        step = np.full(len(place), self._context.view.step, dtype=np.int64)
        return pa.RecordBatch.from_arrays([pa.array(step), pa.array(place)], schema=LIST_PLACE)

    def _load(self) -> Entries:
        if self._entries is None:
            self._entries = self._context.entries()
            self._values = self._context.decode(self._entries.values)
        return self._entries


class BoundMap(MapState):
    """A dictionary per key."""

    def __init__(self, context: HandleContext, subkeys: StateCodec) -> None:
        self._context = context
        self._normalize = context.normalizer()
        self._subkeys = subkeys
        self._entries: Entries | None = None
        self._held: tuple[list[Any], list[Any]] = ([], [])
        self._maps: dict[int, dict[Any, Any]] = {}
        self._changed: dict[int, dict[Any, None]] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of one entry."""
        return self._map().get(key, default)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries: those of earlier steps sorted by key, then those of this step."""
        return list(self._map().items())

    def clear(self) -> None:
        """Forget all entries."""
        self._mark_changed(list(self._map()))
        self._map().clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._map()[key] = self._normalize(value)
        self._mark_changed([key])

    def __delitem__(self, key: Any) -> None:
        del self._map()[key]
        self._mark_changed([key])

    def __getitem__(self, key: Any) -> Any:
        return self._map()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._map()

    def changes(self) -> StateChanges | None:
        """The entries that were set or forgotten."""
        pairs = [(place, key) for place, keys in self._changed.items() for key in keys]
        if not pairs:
            return None
        places = np.array([place for place, _ in pairs], dtype=np.int64)
        values = [self._maps[place].get(key) for place, key in pairs]
        gone = np.array([key not in self._maps[place] for place, key in pairs], dtype=np.bool_)
        subkeys = pa.RecordBatch.from_arrays(
            self._subkeys.encode([key for _, key in pairs]), schema=self._subkeys.schema
        )
        return StateChanges(self._context.changes(places, values, gone, subkeys), None)

    def has_state(self, place: int) -> bool:
        """Whether the key at a place has any entry."""
        if place in self._maps:
            return bool(self._maps[place])
        offsets = self._load().offsets
        return bool(offsets[place] < offsets[place + 1])

    def check(self, place: int) -> None:
        """Raise if a key or value that was set does not fit."""
        keys = list(self._changed.get(place, ()))
        self._subkeys.encode(keys)
        self._context.codec.encode([self._maps[place].get(key) for key in keys])

    def undo(self, place: int) -> None:
        """Restore the dictionary, whose values may have been changed in place."""
        self._changed.pop(place, None)
        if self._maps.pop(place, None) is not None and self._entries is not None:
            self._context.restore(self._held[1], self._entries, place)

    def _mark_changed(self, keys: Sequence[Any]) -> None:
        self._changed.setdefault(self._context.cursor.place, {}).update(dict.fromkeys(keys))

    def _map(self) -> dict[Any, Any]:
        place = self._context.cursor.place
        found = self._maps.get(place)
        if found is None:
            offsets = self._load().offsets
            span = slice(int(offsets[place]), int(offsets[place + 1]))
            keys, values = self._held
            found = dict(zip(keys[span], values[span], strict=True))
            self._maps[place] = found
        return found

    def _load(self) -> Entries:
        if self._entries is None:
            self._entries = self._context.entries()
            every = np.ones(self._entries.rows.num_rows, dtype=np.bool_)
            keys = self._subkeys.decode(self._entries.subkeys, every)
            self._held = (keys, self._context.decode(self._entries.values))
        return self._entries


def _unchanged(value: Any) -> Any:
    return value


Bound: TypeAlias = BoundValue | BoundList | BoundMap
"""A handle bound to the keys of a step."""
