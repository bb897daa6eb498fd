"""Dispatches control messages to the methods of a ``process`` class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.messages import (
    Acquire,
    Barrier,
    Collect,
    Interrogate,
    Message,
    Registered,
    ScaleDown,
    ScaleUp,
)
from anabranch.operators.process import METHODS, ProcessOperator
from anabranch.operators.rows import named_tuples
from anabranch.operators.timers.process_work import ProcessWork
from anabranch.records.bins import BinSet, bin_of
from anabranch.runs.rows import Groups, group_keys


class ProcessStep:
    """One operator in one step: messages before the data, the data, messages after it.

    It knows only the keys of its ``work``: those of the step and of bins that arrive or leave.
    """

    def __init__(self, operator: ProcessOperator, work: ProcessWork, bins: int) -> None:
        self._operator = operator
        self.work = work
        self._calls = work.calls
        self._bins = bin_of(work.groups.hashes, bins)
        self._keys = list(named_tuples("Key", work.groups.keys))
        self._taken: set[int] = set()
        self.registered: set[Hashable] = set()

    @cached_property
    def _place(self) -> dict[Any, int]:
        """Key → place, built on first use: not every key is hashable."""
        return {key: place for place, key in enumerate(self._keys)}

    def handle(self, message: Message) -> int:
        """Call the method for a message that has one; return how many keys it concerned."""
        argument = self._argument(message)
        self._calls.handle(METHODS[type(message)], argument)
        return argument.count if isinstance(argument, _KeyRegister | _Acquired | _Collected) else 0

    def by_bin(self, region: str) -> Registered:
        """The registered keys whose bin is known, counted by bin."""
        places = [self._place[key] for key in self.registered if key in self._place]
        counted = Counter(self._bins[places].tolist())
        numbers = tuple(sorted(counted))
        return Registered(region, self._operator.name, numbers, tuple(counted[n] for n in numbers))

    def _argument(self, message: Message) -> object:
        """The argument of the user's method."""
        match message:
            case Interrogate():
                return _KeyRegister(self)
            case Acquire(bins=bins):
                return _Acquired(self, bins)
            case Collect(bins=bins):
                places = [p for p in self.places_in(bins) if self._calls.saved(p) is not None]
                keys = tuple(self._keys[place] for place in places)
                self._calls.load(places, keys)
                return _Collected(self, bins, keys)
            case ScaleUp() | ScaleDown():
                return _NewShares(self, message)
        return message.step if isinstance(message, Barrier) else getattr(message, "worker", None)

    def places_in(self, bins: BinSet) -> list[int]:
        """The places of the keys in some bins."""
        wanted = np.array(list(bins), dtype=np.int64)
        found: list[int] = np.flatnonzero(np.isin(self._bins, wanted)).tolist()
        return found

    def take(self, bins: BinSet) -> dict[Any, bytes] | None:
        """Take this operator's saved state in bins that have arrived; None if it was taken."""
        states = {}
        for place in self.places_in(bins):
            saved = None if place in self._taken else self._calls.saved(place)
            if saved is not None:
                states[self._keys[place]] = saved
                self._taken.add(place)
        self._calls.mark_loaded(self._taken)
        return states or None

    def leave(self, bins: BinSet, key: Any, state: bytes) -> None:
        """Hand over the state of a key that moves: it becomes the key's saved state."""
        if not isinstance(state, bytes):
            raise TypeError(f"state to hand over must be bytes, not {type(state).__name__}")
        place = self._place.get(key)
        if place is None or int(self._bins[place]) not in bins:
            raise KeyError(f"{key} does not move to another worker")
        self._calls.save(place, state)

    def bin_of(self, key: Any) -> int:
        """The bin of a key of this step; ``KeyError`` for other keys."""
        return int(self._bins[self._place[key]])


class _KeyRegister:
    """``Interrogate``, for one operator. A key registered twice counts once."""

    def __init__(self, at: ProcessStep) -> None:
        self._registered = at.registered

    @property
    def count(self) -> int:
        return len(self._registered)

    def add_keys(self, keys: Iterable[Any]) -> None:
        self._registered.update(keys)


class _Acquired:
    """``Acquire``, for one operator."""

    def __init__(self, at: ProcessStep, bins: BinSet) -> None:
        self._at, self._bins, self.count = at, bins, 0

    def take_state(self) -> dict[Any, bytes] | None:
        states = self._at.take(self._bins)
        self.count += len(states or ())
        return states


class _Collected:
    """``Collect``, for one operator. Of the states left for a key, the last one counts."""

    def __init__(self, at: ProcessStep, bins: BinSet, keys: tuple[Any, ...]) -> None:
        self._at, self._bins, self.keys, self.count = at, bins, keys, 0

    def add_state(self, key: Any, state: bytes) -> None:
        self._at.leave(self._bins, key, state)
        self.count += 1


class _NewShares:
    """``ScaleUp`` or ``ScaleDown``, for one operator."""

    def __init__(self, at: ProcessStep, message: ScaleUp | ScaleDown) -> None:
        self._at, self._message = at, message
        self.fewer = isinstance(message, ScaleDown)

    def can_stay(self, key: Any) -> bool:
        return self._at.bin_of(key) in self._message.can_stay


def no_keys(keys: pa.Schema) -> Groups:
    """No keys of these columns."""
    return group_keys(np.empty(0, dtype=np.uint64), keys.empty_table())
