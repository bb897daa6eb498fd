"""A ``process`` that handles control messages: its object, and what it is shown of each message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.messages import Barrier, Message, Registered, ScaleDown, ScaleUp
from anabranch.operators.control.hand_over import Acquisition, Collection, Interrogation
from anabranch.operators.control.messaging import Heard
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.key_rows import walk
from anabranch.operators.process import METHODS, ProcessOperator, Work
from anabranch.operators.rows import Changes, KeyedEntries, Rows, named_tuples
from anabranch.records.bins import BinSet, bin_of
from anabranch.runs.rows import Groups, group_keys

Int64s = npt.NDArray[np.int64]


class Attending:
    """One operator through one step: messages before the data, the data, messages after it.

    It knows the keys of the step and those of bins that come and go (``moving``), no others. In a
    step in which the input has ended, ``ending`` are the keys that are told.
    """

    def __init__(
        self,
        operator: ProcessOperator,
        rows: Rows | None,
        ending: Groups | None,
        moving: Groups | None,
        states: Mapping[str, KeyedEntries],
        keys: pa.Schema,
        bins: int,
        dead: list[RowFailure] | None,
    ) -> None:
        self._operator = operator
        self._rows = rows
        self._walked = None if rows is None or not len(rows) else walk(rows)
        self._ending = ending
        own = self._walked.groups if self._walked is not None else ending
        known = [groups for groups in (own, moving) if groups is not None]
        self._groups, self._own = _united(known or [_no_keys(keys)], own)
        self._bins = bin_of(self._groups.hashes, bins)
        self._work = Work(operator, self._groups, states, dead)
        self._keys = list(named_tuples("Key", self._groups.keys))
        self.registered: set[Hashable] = set()

    @cached_property
    def _place(self) -> dict[Any, int]:
        """Key → place. Made when it is asked for: not every key can be looked up."""
        return {key: place for place, key in enumerate(self._keys)}

    def run(self, digits: int) -> Rows | None:
        """Call the class for its rows, or for the end of the input; gives the output."""
        if self._walked is not None and self._rows is not None:
            return self._work.called_with(self._rows, self._walked, self._own)
        if self._ending is not None:
            return self._work.ended(digits)
        return None

    def hear(self, message: Message, heard: Heard) -> int:
        """Call the method for a message; gives how many keys it was about."""
        if not self._operator.answers(message):
            return 0
        shown = self._shown(heard)
        self._work.tell(METHODS[type(message)], shown)
        return shown.count if isinstance(shown, _Register | _Arriving | _Leaving) else 0

    def changes(self) -> dict[str, Changes]:
        """What was changed, by state."""
        return self._work.changes()

    def by_bin(self, region: str) -> Registered:
        """The registered keys whose bin is known, counted by bin."""
        places = [self._place[key] for key in self.registered if key in self._place]
        counted = Counter(self._bins[places].tolist())
        numbers = tuple(sorted(counted))
        return Registered(region, self._operator.name, numbers, tuple(counted[n] for n in numbers))

    def _shown(self, heard: Heard) -> object:
        """What the user's method is given."""
        match heard:
            case Interrogation():
                return _Register(self, heard)
            case Acquisition():
                return self._arriving(heard)
            case Collection():
                return self._leaving(heard)
            case ScaleUp() | ScaleDown():
                return _NewShares(self, heard)
        return heard.step if isinstance(heard, Barrier) else getattr(heard, "worker", None)

    def _arriving(self, heard: Acquisition) -> _Arriving:
        if not heard.is_known(self._operator.name):
            states: dict[Hashable, bytes] = {}
            for place in self._places_in(heard.message.bins):
                saved = self._work.saved(place)
                if saved is not None:
                    states[self._keys[place]] = saved
            heard.put(self._operator.name, states)
        return _Arriving(self, heard)

    def _leaving(self, heard: Collection) -> _Leaving:
        places = [p for p in self._places_in(heard.message.bins) if self._work.saved(p) is not None]
        keys = tuple(self._keys[place] for place in places)
        self._work.bring(places, keys)
        return _Leaving(self, heard, keys)

    def _places_in(self, bins: BinSet) -> list[int]:
        wanted = np.array(list(bins), dtype=np.int64)
        found: list[int] = np.flatnonzero(np.isin(self._bins, wanted)).tolist()
        return found

    def register(self, heard: Interrogation, keys: Iterable[Hashable]) -> None:
        """Register keys of this operator."""
        kept = list(keys)
        heard.add_keys(self._operator.name, kept)
        self.registered.update(kept)

    def take(self, heard: Acquisition) -> dict[Any, bytes] | None:
        """Take what has come of this operator's state."""
        states = heard.take_state(self._operator.name)
        self._work.taken(self._place[key] for key in states or ())
        return states

    def leave(self, heard: Collection, key: Any, state: bytes) -> None:
        """Hand over a key's state; it is what is saved of it from now on."""
        if not isinstance(state, bytes):
            raise TypeError(f"state that is handed over is bytes, not {type(state).__name__}")
        place = self._place.get(key)
        if place is None or int(self._bins[place]) not in heard.message.bins:
            raise KeyError(f"{key} does not leave")
        heard.add_state(self._operator.name, key, state)
        self._work.save(place, state)

    def bin_of(self, key: Any) -> int:
        """The bin of a key of this step; ``KeyError`` for another."""
        return int(self._bins[self._place[key]])


class _Register:
    """``Interrogate``, for one operator."""

    def __init__(self, at: Attending, heard: Interrogation) -> None:
        self._at, self._heard = at, heard

    @property
    def count(self) -> int:
        return len(self._at.registered)

    def add_keys(self, keys: Iterable[Any]) -> None:
        self._at.register(self._heard, keys)


class _Arriving:
    """``Acquire``, for one operator."""

    def __init__(self, at: Attending, heard: Acquisition) -> None:
        self._at, self._heard, self.count = at, heard, 0

    def take_state(self) -> dict[Any, bytes] | None:
        states = self._at.take(self._heard)
        self.count += len(states or ())
        return states


class _Leaving:
    """``Collect``, for one operator."""

    def __init__(self, at: Attending, heard: Collection, keys: tuple[Any, ...]) -> None:
        self._at, self._heard, self.keys, self.count = at, heard, keys, 0

    def add_state(self, key: Any, state: bytes) -> None:
        self._at.leave(self._heard, key, state)
        self.count += 1


class _NewShares:
    """``ScaleUp`` or ``ScaleDown``, for one operator."""

    def __init__(self, at: Attending, message: ScaleUp | ScaleDown) -> None:
        self._at, self._message = at, message
        self.fewer = isinstance(message, ScaleDown)

    def can_stay(self, key: Any) -> bool:
        return self._at.bin_of(key) in self._message.can_stay


def _united(parts: list[Groups], own: Groups | None) -> tuple[Groups, Int64s]:
    """All keys once, sorted, and the places of the step's own among them."""
    if len(parts) == 1:
        return parts[0], np.arange(len(parts[0]) if own is not None else 0)
    hashes = np.concatenate([part.hashes for part in parts])
    keys = pa.Table.from_batches([part.keys for part in parts])
    united = group_keys(hashes, keys)
    return united, united.group_of_row[: 0 if own is None else len(own)]


def _no_keys(keys: pa.Schema) -> Groups:
    return group_keys(np.empty(0, dtype=np.uint64), keys.empty_table())
