"""What a user's class gets beside its handles: timers, the frontier and the clock of the step."""

from __future__ import annotations

from datetime import datetime

from anabranch.dataflow.durations import Clock
from anabranch.operators.handles.context import Cursor
from anabranch.operators.timers.due_timers import CLOCKS
from anabranch.operators.timers.timer_book import TimerBook
from anabranch.records.times import to_datetime, to_microseconds


class ProcessTimes:
    """Timers and times of the object that processes a step's keys.

    ``timers`` is None if the class has no ``on_notify``. ``timed``: its rows have event times.
    """

    def __init__(
        self, timers: TimerBook | None, cursor: Cursor, now_ns: int, *, timed: bool
    ) -> None:
        self._timers = timers
        self._cursor = cursor
        self._now_ns = now_ns
        self._timed = timed
        #: why no timer can be set now
        self.closed: str | None = None

    def notify_at(self, at: datetime | int, name: str, clock: Clock) -> None:
        """Set a timer of the key that is being processed."""
        timers = self._open_timers("notify_at")
        if clock not in CLOCKS:
            raise ValueError(f'a clock is "event" or "step", not {clock!r}')
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer is text (str), not {type(name).__name__}")
        if clock == "event" and not self._timed:
            raise RuntimeError(
                "rows have no event time here: use assign_timestamps after the source, or set the "
                'timer with clock="step"'
            )
        timers.set(to_microseconds(at), name, clock)

    def cancel(self, name: str) -> None:
        """Cancel a timer of the key that is being processed."""
        self._open_timers("cancel").cancel(name)

    @property
    def frontier(self) -> datetime:
        """The frontier of event time."""
        if not self._timed:
            raise RuntimeError("rows have no event time here: use assign_timestamps")
        return to_datetime(self._cursor.frontier)

    @property
    def now(self) -> datetime:
        """The clock of the step."""
        return to_datetime(self._now_ns // 1000)

    def _open_timers(self, verb: str) -> TimerBook:
        if self._timers is None:
            raise RuntimeError(f"{verb} needs a method on_notify(self, key, at, name) in the class")
        if self.closed is not None:
            raise RuntimeError(f"{verb} is not possible here: {self.closed}")
        return self._timers
