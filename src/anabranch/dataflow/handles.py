"""What a ``process`` is made of: the class that users derive from, and its handles of state.

A class says which state it keeps by attributes::

    class Visits(ab.Process):
        pages = ab.ListState("url string", ttl="1 hour")

        def on_rows(self, key, rows):
            for row in rows:
                self.pages.append(row.url)
            return [(key.user, len(self.pages))]

The attributes declare; in a task each of them is replaced by one that works for the key whose rows
are being processed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from anabranch.messages import ArrivingState, KeyRegister, LeavingState, NewShares

TimeToLive: TypeAlias = "timedelta | str | None"

_UNITS = {
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
    "week": 7 * 86400 * 10**9,
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+?)s?\s*(?:,|$|(?=\d))", re.IGNORECASE)


def ttl_ns(ttl: TimeToLive) -> int | None:
    """A time-to-live in nanoseconds; ``ValueError`` for one that cannot be read or is not positive.

    >>> ttl_ns("1 hour 30 minutes") == 90 * 60 * 10**9
    True
    """
    if ttl is None:
        return None
    if isinstance(ttl, timedelta):
        total = int(ttl / timedelta(microseconds=1)) * 1000
    elif isinstance(ttl, str):
        total = _parsed(ttl)
    else:
        raise TypeError(f"a time-to-live is text or a timedelta, not {type(ttl).__name__}")
    if total <= 0:
        raise ValueError(f"a time-to-live must be more than nothing, not {ttl!r}")
    return total


def _parsed(text: str) -> int:
    total, place = 0, 0
    while place < len(text):
        found = _PART.match(text, place)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise ValueError(
                f"{text!r} is not a time: write e.g. '90 seconds' or '1 hour 30 minutes'; "
                f"there are {', '.join(_UNITS)}"
            )
        total += int(found[1]) * unit
        place = found.end()
    return total


@dataclass
class ValueState:
    """One value per key: of these columns, or any that msgspec can encode.

    A value of one column is that value, of several a named tuple.
    """

    schema: str | None = None
    ttl: TimeToLive = None

    def get(self) -> Any:
        """The key's value; None where there is none."""
        raise _unbound()

    def set(self, value: Any) -> None:
        """Keep a value; None forgets it."""
        raise _unbound()

    def clear(self) -> None:
        """Forget the key's value."""
        raise _unbound()


@dataclass
class ListState:
    """A list per key. Appending reads nothing, however long the list is."""

    schema: str | None = None
    ttl: TimeToLive = None

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        raise _unbound()

    def get(self) -> list[Any]:
        """All values, in the order in which they were appended."""
        raise _unbound()

    def clear(self) -> None:
        """Forget all values."""
        raise _unbound()

    def __iter__(self) -> Iterator[Any]:
        """All values in order."""
        return iter(self.get())

    def __len__(self) -> int:
        """How many values there are."""
        return len(self.get())


@dataclass
class MapState:
    """A dictionary per key: ``key`` is a schema text as of ``key_by``, ``value`` as of a value."""

    key: str
    value: str | None = None
    ttl: TimeToLive = None

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of one entry."""
        raise _unbound()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries: those of earlier steps by their keys, then those that are new."""
        raise _unbound()

    def clear(self) -> None:
        """Forget all entries."""
        raise _unbound()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep an entry."""
        raise _unbound()

    def __delitem__(self, key: Any) -> None:
        """Forget an entry; ``KeyError`` where there is none."""
        raise _unbound()

    def __getitem__(self, key: Any) -> Any:
        """The value of an entry; ``KeyError`` where there is none."""
        raise _unbound()

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry."""
        raise _unbound()

    def __iter__(self) -> Iterator[Any]:
        """The keys of all entries."""
        return (key for key, _ in self.items())

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(1 for _ in self.items())


Handle: TypeAlias = ValueState | ListState | MapState


class Process:
    """What a user derives from: called for each key with its rows.

    One object serves all keys of a worker for one step: what must be there in the next step
    belongs in a handle, or is given by ``save`` and taken by ``load``.

    The control messages have methods too, from ``on_acquire`` on. Whoever does not override them
    takes part in a rescale all the same: what was saved goes where its key goes. They are called
    once for each input of the operator, give no rows, and must not change what rows give: whether
    and when they are called depends on the placement.
    """

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        """A key's rows of this step, in order; gives None, a row, or any number of rows."""
        raise NotImplementedError

    def on_end(self, key: Any) -> Any:
        """Called once for every key that has state when the input has ended; gives rows."""
        return None

    def load(self, key: Any, saved: bytes) -> None:
        """Take what ``save`` gave for this key in an earlier step."""

    def save(self, key: Any) -> bytes | None:
        """What to keep of this key outside the handles; None for nothing."""
        return None

    def on_acquire(self, arriving: ArrivingState) -> None:
        """Keys have come from another worker; called before the first row of the step."""
        for key, saved in (arriving.take_state() or {}).items():
            self.load(key, saved)

    def on_interrogate(self, register: KeyRegister) -> None:
        """Which keys are held is asked, after the last row; what was saved is known already."""

    def on_scale(self, shares: NewShares) -> None:
        """Keys are going to be shared anew; called after the last row of a step."""

    def on_collect(self, leaving: LeavingState) -> None:
        """Keys go to another worker after this step; called after its last row."""
        for key in leaving.keys:
            saved = self.save(key)
            if saved is not None:
                leaving.add_state(key, saved)

    def on_barrier(self, step: int) -> None:
        """The data of a step is over."""

    def on_shutdown(self, worker: int) -> None:
        """This worker has no keys any more, and no step after this one."""


def handles_of(process: type[Process]) -> dict[str, Handle]:
    """The handles that a class declares, by name, its bases' first."""
    found: dict[str, Handle] = {}
    for base in reversed(process.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, ValueState | ListState | MapState):
                found[name] = value
    return found


def overrides(process: type[Process], method: str) -> bool:
    """Whether a class has a method of its own in place of ``Process``'s."""
    return getattr(process, method) is not getattr(Process, method)


def _unbound() -> RuntimeError:
    return RuntimeError("state can be used in on_rows and on_end only, through self")
