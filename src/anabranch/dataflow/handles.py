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
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from anabranch.dataflow.durations import Clock, TimeToLive
from anabranch.messages import ArrivingState, KeyRegister, LeavingState, NewShares


@dataclass
class ValueState:
    """One value per key, with the columns of ``schema``, or any value that msgspec can encode.

    A value with one column is plain; with several it is a named tuple. ``clock`` is what its
    time-to-live goes by: the clock of the steps, or event time.
    """

    schema: str | None = None
    ttl: TimeToLive = None
    clock: Clock = "step"

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
    clock: Clock = "step"

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
    clock: Clock = "step"

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


class ProcessContext(Protocol):
    """What a task gives the user's object beside its handles: timers and the time."""

    def notify_at(self, at: datetime | int, name: str, clock: Clock) -> None:
        """Set a timer of the key that is being processed."""
        ...

    def cancel(self, name: str) -> None:
        """Cancel a timer of the key that is being processed."""
        ...

    @property
    def frontier(self) -> datetime:
        """The frontier of event time."""
        ...

    @property
    def now(self) -> datetime:
        """The clock of the step."""
        ...


class Process:
    """The base class of the user's operators: called with the rows of each key.

    One object serves all keys of a worker for one step. Keep what the next step needs in a handle,
    or return it from ``save`` and take it back in ``load``.

    A class with ``on_notify`` can set timers. A timer belongs to the key for which it was set, and
    there is one for each name and clock.

    The methods from ``on_acquire`` on receive control messages. Overriding them is optional: saved
    state moves with its key either way. They are called once per input of the operator, emit no
    rows, and must not influence any: whether and when they are called depends on the placement.
    """

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        """Process a key's rows of this step, in order; return None, a row, or several rows."""
        raise NotImplementedError

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        """Process a timer of a key, with the time that was asked for; return rows as ``on_rows``.

        By event time, it is called when the frontier has passed the time: no row of that time or
        an earlier one is expected any more.
        """
        raise NotImplementedError

    def on_end(self, key: Any) -> Any:
        """Return the last rows of a key with state; called once when the input has ended."""
        return None

    def notify_at(self, at: datetime | int, name: str, clock: Clock = "event") -> None:
        """Set the key's timer of this name: ``on_notify`` is called at this time.

        ``at`` is a datetime (in UTC if it has no time zone), or microseconds since 1970. Setting
        the timer again moves it. With ``clock="step"`` the time is by the clock of the steps. A
        time that has passed already is not lost: the timer fires in the next step.
        """
        self._bound_context.notify_at(at, name, clock)

    def cancel(self, name: str) -> None:
        """Cancel the key's timers of this name, of both clocks; nothing happens if none is set."""
        self._bound_context.cancel(name)

    @property
    def frontier(self) -> datetime:
        """The event time that has been reached: no earlier row is expected any more.

        In ``on_notify`` it is just after the timer's time. Before any time is known it is
        ``datetime.min``, in UTC, so that it can always be compared.
        """
        return self._bound_context.frontier

    @property
    def now(self) -> datetime:
        """The clock of the step, in UTC: the same for all its calls, also when it is repeated."""
        return self._bound_context.now

    #: set in a task
    _anabranch: ProcessContext | None = None

    @property
    def _bound_context(self) -> ProcessContext:
        if self._anabranch is None:
            raise RuntimeError("timers and times are available only in a task, through self")
        return self._anabranch

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


def bind_context(process: Process, context: ProcessContext) -> None:
    """Give the user's object its timers and the time."""
    process._anabranch = context


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


def timer_state(operator: str, clock: Clock) -> str:
    """The name of the state of an operator's timers.

    No handle has this name: a handle is an identifier, and this is none.
    """
    return f"{operator}.{clock}-timers"


def _unbound() -> RuntimeError:
    return RuntimeError("state is available only in on_rows and on_end, through self")
