"""A dictionary per key, bound to the keys of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import MapState
from anabranch.operators.codec import StateCodec
from anabranch.operators.handles.context import HandleContext
from anabranch.operators.rows import StateChanges
from anabranch.runs.entries import Entries


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
        self._kept: dict[int, tuple[dict[Any, Any], dict[Any, None]]] = {}

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
        expiry = self._expiry_of(pairs)
        return StateChanges(self._context.changes(places, values, gone, subkeys, expiry), None)

    def check(self, place: int) -> None:
        """Raise if a key or value that was set does not fit."""
        keys = list(self._changed.get(place, ()))
        self._subkeys.encode(keys)
        self._context.codec.encode([self._maps[place].get(key) for key in keys])

    def keep(self, place: int) -> None:
        """Let ``undo`` restore the dictionary as it is now."""
        if place in self._changed:
            self._kept[place] = deepcopy((self._maps[place], self._changed[place]))

    def undo(self, place: int) -> None:
        """Restore the dictionary, whose values may have been changed in place."""
        if place in self._kept:
            self._maps[place], self._changed[place] = deepcopy(self._kept[place])
            return
        self._changed.pop(place, None)
        if self._maps.pop(place, None) is not None and self._entries is not None:
            self._context.restore(self._held[1], self._entries, place)

    def holds(self) -> bool:
        """Whether the key has entries."""
        return bool(self._map())

    def _expiry_of(self, pairs: Sequence[tuple[int, Any]]) -> pa.Array | None:
        """When the entries, by place and key, expire; None: by the clock of the step."""
        return None

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
