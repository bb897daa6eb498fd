"""A value per key, bound to the keys of a step."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import ValueState
from anabranch.operators.handles.context import HandleContext
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import StateChanges
from anabranch.runs.rows import LookupResult


class BoundValue(ValueState):
    """A value per key."""

    def __init__(self, context: HandleContext) -> None:
        self._context = context
        self._normalize = context.normalizer()
        self._values: list[Any] | None = None
        self._held: LookupResult | None = None
        self._touched: dict[int, None] = {}
        self._kept: dict[int, Any] = {}

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
        changed = self._context.changes(places, values, gone, expiry=self._expiry_of(places))
        return StateChanges(changed, self._held.present[places])

    def check(self, place: int) -> None:
        """Raise if the value does not fit."""
        if place in self._touched:
            self._context.codec.encode([self._load()[place]])

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the value as it is now."""
        if place in self._touched:
            self._kept[place] = deepcopy(self._load()[place])

    def undo(self, place: int) -> None:
        """Restore the value, which may have been changed in place."""
        if place in self._kept:
            self._load()[place] = deepcopy(self._kept[place])
            return
        self._touched.pop(place, None)
        if self._held is not None and self._values is not None:
            found = self._held.found[place : place + 1]
            before = self._context.codec.decode(self._held.values.slice(place, 1), found)
            self._values[place] = before[0]

    def holds(self) -> bool:
        """Whether the key has a value."""
        return self.get() is not None

    def _load(self) -> list[Any]:
        if self._values is None:
            self._held = self._context.find()
            self._values = self._context.codec.decode(self._held.values, self._held.found)
        return self._values

    def _expiry_of(self, places: Int64s) -> pa.Array | None:
        """When the values at these places expire; None: by the clock of the step."""
        return None
