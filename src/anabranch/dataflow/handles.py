"""``Process``, the base class of a ``process`` operator, and its state handles.

A class declares its state as attributes::

    class Visits(ab.Process):
        pages = ab.ListState("url string", ttl="1 hour")

        def on_rows(self, key, rows):
            for row in rows:
                self.pages.append(row.url)
            return [(key.user, len(self.pages))]

In a task, each attribute is replaced by a handle for the key whose rows are being processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.dataflow.durations import TimeToLive
from anabranch.messages import ArrivingState, KeyRegister, LeavingState, NewShares


@dataclass
class ValueState:
    """One value per key, with the columns of ``schema``, or any value that msgspec can encode.

    A value with one column is plain; with several it is a named tuple.
    """

    schema: str | None = None
    ttl: TimeToLive = None

    def get(self) -> Any:
        """The key's value, or None."""
        raise _unbound()

    def set(self, value: Any) -> None:
        """Set the value; None deletes it."""
        raise _unbound()

    def clear(self) -> None:
        """Delete the value."""
        raise _unbound()


@dataclass
class ListState:
    """A list per key. Appending does not read the list."""

    schema: str | None = None
    ttl: TimeToLive = None

    def append(self, value: Any) -> None:
        """Append a value."""
        raise _unbound()

    def get(self) -> list[Any]:
        """All values, in the order they were appended."""
        raise _unbound()

    def clear(self) -> None:
        """Delete all values."""
        raise _unbound()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.get())


@dataclass
class MapState:
    """A dictionary per key. ``key`` is a schema text of key types, ``value`` of any state."""

    key: str
    value: str | None = None
    ttl: TimeToLive = None

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of one entry."""
        raise _unbound()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries: those of earlier steps in key order, then the new ones."""
        raise _unbound()

    def clear(self) -> None:
        """Delete all entries."""
        raise _unbound()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _unbound()

    def __delitem__(self, key: Any) -> None:
        """Delete an entry; ``KeyError`` if there is none."""
        raise _unbound()

    def __getitem__(self, key: Any) -> Any:
        """The value of an entry; ``KeyError`` if there is none."""
        raise _unbound()

    def __contains__(self, key: object) -> bool:
        raise _unbound()

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self.items())


Handle: TypeAlias = ValueState | ListState | MapState


class Process:
    """The base class of the user's operators: called with the rows of each key.

    One object serves all keys of a worker for one step. Keep what the next step needs in a handle,
    or return it from ``save`` and take it back in ``load``.

    The methods from ``on_acquire`` on receive control messages. Overriding them is optional: saved
    state moves with its key either way. They are called once per input of the operator, emit no
    rows, and must not influence any: whether and when they are called depends on the placement.
    """

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        """Process a key's rows of this step, in order; return None, a row, or several rows."""
        raise NotImplementedError

    def on_end(self, key: Any) -> Any:
        """Return the last rows of a key with state; called once when the input has ended."""
        return None

    def load(self, key: Any, saved: bytes) -> None:
        """Restore what ``save`` returned for this key in an earlier step."""

    def save(self, key: Any) -> bytes | None:
        """The state of this key outside the handles; None if there is none."""
        return None

    def on_acquire(self, arriving: ArrivingState) -> None:
        """Take over keys from another worker; called before the first row of the step."""
        for key, saved in (arriving.take_state() or {}).items():
            self.load(key, saved)

    def on_interrogate(self, register: KeyRegister) -> None:
        """Register the keys held beyond the saved ones; called after the last row."""

    def on_scale(self, shares: NewShares) -> None:
        """Prepare for a reassignment of keys; called after the last row of a step."""

    def on_collect(self, leaving: LeavingState) -> None:
        """Hand over keys that move to another worker; called after the last row of a step."""
        for key in leaving.keys:
            saved = self.save(key)
            if saved is not None:
                leaving.add_state(key, saved)

    def on_barrier(self, step: int) -> None:
        """Note the end of a step's data."""

    def on_shutdown(self, worker: int) -> None:
        """Note that this is the worker's last step: it has no keys left."""


def handles_of(process: type[Process]) -> dict[str, Handle]:
    """The handles that a class declares, by name, those of its bases first."""
    found: dict[str, Handle] = {}
    for base in reversed(process.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, ValueState | ListState | MapState):
                found[name] = value
    return found


def overrides(process: type[Process], method: str) -> bool:
    """Whether a class overrides a method of ``Process``."""
    return getattr(process, method) is not getattr(Process, method)


def _unbound() -> RuntimeError:
    return RuntimeError("state is available only in on_rows and on_end, through self")
