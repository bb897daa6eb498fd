"""A list per key, bound to the keys of a step."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import ListState
from anabranch.operators.handles.context import HandleContext
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import StateChanges
from anabranch.runs.entries import Entries
from anabranch.runs.sorted_rows import concat_rows

LIST_PLACE = pa.schema([pa.field("step", pa.int64()), pa.field("place", pa.int64())])
"""The sub-key of a list item: the step in which it was appended, and its number in the step."""


class BoundList(ListState):
    """A list per key."""

    def __init__(self, context: HandleContext) -> None:
        self._context = context
        self._normalize = context.normalizer()
        self._entries: Entries | None = None
        self._values: list[Any] = []
        self._appended: dict[int, list[Any]] = {}
        self._cleared: dict[int, None] = {}
        self._kept: dict[int, tuple[list[Any] | None, bool]] = {}

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
            every,
            [None] * len(gone) + values,
            dead,
            concat_rows(LIST_PLACE, subkeys),
            self._expiry_of(len(gone)),
        )
        return StateChanges(changed, dead)

    def check(self, place: int) -> None:
        """Raise if an appended value does not fit."""
        if place in self._appended:
            self._context.codec.encode(self._appended[place])

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the list as it is now."""
        if place in self._appended or place in self._cleared:
            self._kept[place] = (deepcopy(self._appended.get(place)), place in self._cleared)

    def undo(self, place: int) -> None:
        """Restore the list, whose values may have been changed in place."""
        appended, cleared = deepcopy(self._kept.get(place, (None, False)))
        self._appended.pop(place, None)
        self._cleared.pop(place, None)
        if appended is not None:
            self._appended[place] = appended
        if cleared:
            self._cleared[place] = None
        if self._entries is not None:
            self._context.restore(self._values, self._entries, place)

    def holds(self) -> bool:
        """Whether the key has values."""
        return bool(self.get())

    def _expiry_of(self, gone: int) -> pa.Array | None:
        """When the appended values expire, after ``gone`` others; None: by the step's clock."""
        return None

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
