"""Handles at work: the state of the keys of one step, as a user's class sees and changes it.

All keys of the step are looked up at once, and only when somebody asks; what changed is collected
and becomes one batch of changes per handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.handles import ListState, MapState, ValueState
from anabranch.operators.codec import StateCodec
from anabranch.operators.rows import Changes, KeyedEntries
from anabranch.runs.changes import KeyChanges
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups, LookupResult

LIST_PLACE = pa.schema([pa.field("step", pa.int64()), pa.field("place", pa.int64())])
"""The sub-key of a list: in which step a value was appended, and as which one of it."""

Int64s = npt.NDArray[np.int64]
_ABSENT = object()


@dataclass(slots=True)
class Cursor:
    """Which of the step's keys is being processed, for all handles together."""

    place: int = 0


@dataclass(frozen=True, slots=True)
class HandleContext:
    """What a handle needs: its state, the step's keys, where the work is, and how it is kept."""

    view: KeyedEntries
    groups: Groups
    cursor: Cursor
    codec: StateCodec
    ttl_ns: int | None

    def expiry(self, count: int) -> pa.Array | None:
        """When what is written now expires."""
        if self.ttl_ns is None:
            return None
        return pa.array(np.full(count, self.view.now_ns + self.ttl_ns, dtype=np.int64))

    def encoded(self, values: Sequence[Any]) -> pa.RecordBatch:
        """Values as state columns."""
        return pa.RecordBatch.from_arrays(self.codec.encode(values), schema=self.codec.schema)

    def keys(self, places: Int64s) -> pa.RecordBatch:
        """The keys at these places."""
        return self.groups.keys.take(pa.array(places))

    def again(self) -> Callable[[Any], Any]:
        """How a value that was just kept is read: as it will be in a later step."""
        return self.codec.again() or _as_it_is


class Bound(Protocol):
    """A handle at work."""

    def changes(self) -> Changes | None:
        """What was changed; None where nothing was."""
        ...

    def check(self, place: int) -> None:
        """Raise where what was set for a key does not fit its columns."""
        ...

    def undo(self, place: int) -> None:
        """Take a key's state as it was before the step."""
        ...


class BoundValue(ValueState):
    """A value per key."""

    def __init__(self, opened: HandleContext) -> None:
        """Nothing is looked up yet."""
        self._opened = opened
        self._again = opened.again()
        self._values: list[Any] | None = None
        self._held: LookupResult | None = None
        self._touched: dict[int, None] = {}

    def get(self) -> Any:
        """The key's value; None where there is none."""
        return self._loaded()[self._opened.cursor.place]

    def set(self, value: Any) -> None:
        """Keep a value; None forgets it."""
        place = self._opened.cursor.place
        self._loaded()[place] = self._again(value)
        self._touched[place] = None

    def clear(self) -> None:
        """Forget the key's value."""
        self.set(None)

    def changes(self) -> Changes | None:
        """The values that were set."""
        if not self._touched:
            return None
        places = np.fromiter(self._touched, np.int64, len(self._touched))
        values = [self._loaded()[place] for place in self._touched]
        changed = KeyChanges(
            self._opened.groups.hashes[places],
            self._opened.keys(places),
            self._opened.encoded(values),
            np.array([value is None for value in values], dtype=np.bool_),
            expiry=self._opened.expiry(len(places)),
        )
        assert self._held is not None
        return Changes(changed, self._held.present[places])

    def check(self, place: int) -> None:
        """Raise where the value does not fit."""
        if place in self._touched:
            self._opened.codec.encode([self._loaded()[place]])

    def undo(self, place: int) -> None:
        """Take the value as it was; what was read may have been changed in place."""
        self._touched.pop(place, None)
        if self._held is not None and self._values is not None:
            found = self._held.found[place : place + 1]
            before = self._opened.codec.decode(self._held.values.slice(place, 1), found)
            self._values[place] = before[0]

    def _loaded(self) -> list[Any]:
        if self._values is None:
            groups = self._opened.groups
            self._held = self._opened.view.find(groups.hashes, groups.keys)
            self._values = self._opened.codec.decode(self._held.values, self._held.found)
        return self._values


class BoundList(ListState):
    """A list per key."""

    def __init__(self, opened: HandleContext) -> None:
        """Nothing is looked up yet."""
        self._opened = opened
        self._again = opened.again()
        self._entries: Entries | None = None
        self._values: list[Any] = []
        self._appended: dict[int, list[Any]] = {}
        self._cleared: dict[int, None] = {}

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        place, value = self._opened.cursor.place, self._again(value)
        self._appended.setdefault(place, []).append(value)

    def get(self) -> list[Any]:
        """All values, in the order in which they were appended."""
        place = self._opened.cursor.place
        new = self._appended.get(place, [])
        if place in self._cleared:
            return list(new)
        offsets = self._loaded().offsets
        return self._values[offsets[place] : offsets[place + 1]] + new

    def clear(self) -> None:
        """Forget all values."""
        self._cleared[self._opened.cursor.place] = None
        self._appended.pop(self._opened.cursor.place, None)

    def changes(self) -> Changes | None:
        """The values that were appended, and the end of those that were cleared."""
        gone = self._gone()
        lengths = [len(values) for values in self._appended.values()]
        places = np.repeat(np.fromiter(self._appended, np.int64, len(lengths)), lengths)
        if not len(gone) and not len(places):
            return None
        values = [value for each in self._appended.values() for value in each]
        every = np.concatenate([gone, places])
        dead = np.arange(len(every)) < len(gone)
        encoded = self._opened.encoded([None] * len(gone) + values)
        changed = KeyChanges(
            self._opened.groups.hashes[every],
            self._opened.keys(every),
            encoded,
            dead,
            self._places(lengths),
            self._opened.expiry(len(every)),
        )
        return Changes(changed, dead)

    def check(self, place: int) -> None:
        """Raise where an appended value does not fit."""
        if place in self._appended:
            self._opened.codec.encode(self._appended[place])

    def undo(self, place: int) -> None:
        """Take the list as it was; values that were read may have been changed in place."""
        self._appended.pop(place, None)
        self._cleared.pop(place, None)
        if self._entries is not None:
            first, last = self._entries.offsets[place : place + 2].tolist()
            before = self._entries.values.slice(first, last - first)
            every = np.ones(last - first, dtype=np.bool_)
            self._values[first:last] = self._opened.codec.decode(before, every)

    def _gone(self) -> Int64s:
        """For each value that was cleared, the place of its key."""
        if not self._cleared:
            return np.empty(0, dtype=np.int64)
        places = self._loaded().places
        return places[np.isin(places, np.fromiter(self._cleared, np.int64, len(self._cleared)))]

    def _places(self, lengths: Sequence[int]) -> pa.RecordBatch:
        numbers = [np.arange(length, dtype=np.int64) for length in lengths]
        place = np.concatenate([np.empty(0, dtype=np.int64), *numbers])
        step = np.full(len(place), self._opened.view.step, dtype=np.int64)
        new = pa.RecordBatch.from_arrays([pa.array(step), pa.array(place)], schema=LIST_PLACE)
        if not self._cleared:
            return new
        entries = self._loaded()
        cleared = np.isin(entries.places, np.fromiter(self._cleared, np.int64, len(self._cleared)))
        old = entries.subkeys.filter(pa.array(cleared))
        return pa.Table.from_batches([old, new]).combine_chunks().to_batches()[0]

    def _loaded(self) -> Entries:
        if self._entries is None:
            groups = self._opened.groups
            self._entries = self._opened.view.entries(groups.hashes, groups.keys)
            values = self._entries.values
            self._values = self._opened.codec.decode(values, np.ones(values.num_rows, np.bool_))
        return self._entries


class BoundMap(MapState):
    """A dictionary per key."""

    def __init__(self, opened: HandleContext, subkeys: StateCodec) -> None:
        """Nothing is looked up yet."""
        self._opened = opened
        self._again = opened.again()
        self._subkeys = subkeys
        self._entries: Entries | None = None
        self._held: tuple[list[Any], list[Any]] = ([], [])
        self._maps: dict[int, dict[Any, Any]] = {}
        self._changed: dict[int, dict[Any, None]] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of one entry."""
        return self._map().get(key, default)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries: those of earlier steps by their keys, then those of this one."""
        return list(self._map().items())

    def clear(self) -> None:
        """Forget all entries."""
        self._note(list(self._map()))
        self._map().clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep an entry."""
        self._map()[key] = self._again(value)
        self._note([key])

    def __delitem__(self, key: Any) -> None:
        """Forget an entry; ``KeyError`` where there is none."""
        del self._map()[key]
        self._note([key])

    def __getitem__(self, key: Any) -> Any:
        """The value of an entry; ``KeyError`` where there is none."""
        return self._map()[key]

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry."""
        return key in self._map()

    def changes(self) -> Changes | None:
        """The entries that were set or forgotten."""
        pairs = [(place, key) for place, keys in self._changed.items() for key in keys]
        if not pairs:
            return None
        places = np.array([place for place, _ in pairs], dtype=np.int64)
        values = [self._maps[place].get(key, _ABSENT) for place, key in pairs]
        gone = np.array([value is _ABSENT for value in values], dtype=np.bool_)
        subkeys = self._subkeys.encode([key for _, key in pairs])
        changed = KeyChanges(
            self._opened.groups.hashes[places],
            self._opened.keys(places),
            self._opened.encoded([None if value is _ABSENT else value for value in values]),
            gone,
            pa.RecordBatch.from_arrays(subkeys, schema=self._subkeys.schema),
            self._opened.expiry(len(places)),
        )
        return Changes(changed, None)

    def check(self, place: int) -> None:
        """Raise where a key or value that was set does not fit."""
        keys = list(self._changed.get(place, ()))
        self._subkeys.encode(keys)
        self._opened.codec.encode([self._maps[place].get(key) for key in keys])

    def undo(self, place: int) -> None:
        """Take the dictionary as it was; values that were read may have been changed in place."""
        self._changed.pop(place, None)
        if self._maps.pop(place, None) is not None and self._entries is not None:
            first, last = self._entries.offsets[place : place + 2].tolist()
            before = self._entries.values.slice(first, last - first)
            every = np.ones(last - first, dtype=np.bool_)
            self._held[1][first:last] = self._opened.codec.decode(before, every)

    def _note(self, keys: Sequence[Any]) -> None:
        self._changed.setdefault(self._opened.cursor.place, {}).update(dict.fromkeys(keys))

    def _map(self) -> dict[Any, Any]:
        place = self._opened.cursor.place
        found = self._maps.get(place)
        if found is None:
            offsets = self._loaded().offsets
            span = slice(int(offsets[place]), int(offsets[place + 1]))
            keys, values = self._held
            found = dict(zip(keys[span], values[span], strict=True))
            self._maps[place] = found
        return found

    def _loaded(self) -> Entries:
        if self._entries is None:
            groups = self._opened.groups
            self._entries = self._opened.view.entries(groups.hashes, groups.keys)
            every = np.ones(self._entries.rows.num_rows, dtype=np.bool_)
            self._held = (
                self._subkeys.decode(self._entries.subkeys, every),
                self._opened.codec.decode(self._entries.values, every),
            )
        return self._entries


def _as_it_is(value: Any) -> Any:
    return value
