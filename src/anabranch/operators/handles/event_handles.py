"""Handles whose time-to-live goes by event time.

A value lives until the frontier has passed the time of what it was made of by the time-to-live. The
frontier moves within a step, from that of the step before by way of each timer's time to its own.
So what a key holds is asked for at the cursor's frontier. What expires needs no change: its row
expires by the frontier of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.operators.codec import StateCodec
from anabranch.operators.handles.bound_list import BoundList
from anabranch.operators.handles.bound_map import BoundMap
from anabranch.operators.handles.bound_value import BoundValue
from anabranch.operators.handles.context import EventContext
from anabranch.operators.order.row_order import Int64s
from anabranch.runs.due import NEVER
from anabranch.runs.entries import Entries


class EventValue(BoundValue):
    """A value per key that expires by event time."""

    def __init__(self, context: EventContext) -> None:
        super().__init__(context)
        self._times = context
        self._expiry: list[int] = []
        self._kept_expiry: dict[int, int] = {}

    def get(self) -> Any:
        """The key's value, None if it has none or it has expired."""
        value, cursor = super().get(), self._times.cursor
        return None if self._expiry[cursor.place] <= cursor.frontier else value

    def set(self, value: Any) -> None:
        """Set the key's value, which lives from now on; None forgets it."""
        super().set(value)
        self._expiry[self._times.cursor.place] = self._times.lives_until

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the value as it is now."""
        super().keep(place)
        if place in self._touched:
            self._kept_expiry[place] = self._expiry[place]

    def undo(self, place: int) -> None:
        """Restore the value and when it expires."""
        super().undo(place)
        if place in self._kept_expiry:
            self._expiry[place] = self._kept_expiry[place]
        elif self._held is not None:
            self._expiry[place] = _times(self._held.expiry)[place]

    def _load(self) -> list[Any]:
        loaded = self._values is not None
        values = super()._load()
        if not loaded:
            assert self._held is not None
            self._expiry = _times(self._held.expiry)
        return values

    def _expiry_of(self, places: Int64s) -> pa.Array:
        return pa.array([self._expiry[place] for place in places.tolist()], type=pa.int64())


class EventList(BoundList):
    """A list per key of values that expire by event time, each by itself."""

    def __init__(self, context: EventContext) -> None:
        super().__init__(context)
        self._times = context
        self._expiry: list[int] = []
        #: of the appended values, by place
        self._new_expiry: dict[int, list[int]] = {}
        self._kept_expiry: dict[int, list[int]] = {}

    def append(self, value: Any) -> None:
        """Add a value at the end, which lives from now on."""
        super().append(value)
        times = self._new_expiry.setdefault(self._times.cursor.place, [])
        times.append(self._times.lives_until)

    def get(self) -> list[Any]:
        """All values that have not expired, in the order in which they were appended."""
        place, frontier = self._times.cursor.place, self._times.cursor.frontier
        expiry = self._new_expiry.get(place, [])
        if place not in self._cleared:
            offsets = self._load().offsets
            expiry = self._expiry[offsets[place] : offsets[place + 1]] + expiry
        values = super().get()
        return [value for value, at in zip(values, expiry, strict=True) if at > frontier]

    def clear(self) -> None:
        """Forget all values."""
        super().clear()
        self._new_expiry.pop(self._times.cursor.place, None)

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the list as it is now."""
        super().keep(place)
        self._kept_expiry[place] = list(self._new_expiry.get(place, ()))

    def undo(self, place: int) -> None:
        """Restore the list and when its values expire."""
        super().undo(place)
        self._new_expiry.pop(place, None)
        if place in self._appended:
            self._new_expiry[place] = list(self._kept_expiry[place])

    def _load(self) -> Entries:
        loaded = self._entries is not None
        entries = super()._load()
        if not loaded:
            self._expiry = _times(entries.expiry)
        return entries

    def _expiry_of(self, gone: int) -> pa.Array:
        appended = (self._new_expiry[place] for place in self._appended)
        times = [0] * gone + [at for each in appended for at in each]
        return pa.array(times, type=pa.int64())


class EventMap(BoundMap):
    """A dictionary per key of entries that expire by event time, each by itself."""

    def __init__(self, context: EventContext, subkeys: StateCodec) -> None:
        super().__init__(context, subkeys)
        self._times = context
        self._expiry: list[int] = []
        #: when the entries of each key expire, and the frontier up to which they were dropped
        self._lives: dict[int, dict[Any, int]] = {}
        self._dropped: dict[int, int] = {}
        self._kept_lives: dict[int, dict[Any, int]] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._lives[self._times.cursor.place][key] = self._times.lives_until

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the dictionary as it is now."""
        super().keep(place)
        if place in self._changed:
            self._kept_lives[place] = dict(self._lives[place])

    def undo(self, place: int) -> None:
        """Restore the dictionary and when its entries expire."""
        super().undo(place)
        self._dropped.pop(place, None)
        self._lives.pop(place, None)
        if place in self._kept_lives:
            self._lives[place] = dict(self._kept_lives[place])

    def _map(self) -> dict[Any, Any]:
        """The dictionary of the key without what has expired at the cursor's frontier."""
        place, frontier = self._times.cursor.place, self._times.cursor.frontier
        found = super()._map()
        if place not in self._lives:
            offsets = self._load().offsets
            self._lives[place] = dict(
                zip(found, self._expiry[offsets[place] : offsets[place + 1]], strict=True)
            )
        if self._dropped.get(place) != frontier:
            self._dropped[place] = frontier
            lives = self._lives[place]
            for key in [key for key in found if lives[key] <= frontier]:
                del found[key]
        return found

    def _load(self) -> Entries:
        loaded = self._entries is not None
        entries = super()._load()
        if not loaded:
            self._expiry = _times(entries.expiry)
        return entries

    def _expiry_of(self, pairs: Sequence[tuple[int, Any]]) -> pa.Array:
        times = [self._lives[place].get(key, 0) for place, key in pairs]
        return pa.array(times, type=pa.int64())


def _times(expiry: pa.Array | None) -> list[int]:
    assert expiry is not None
    times: list[int] = expiry.fill_null(NEVER).to_numpy(zero_copy_only=False).tolist()
    return times
