"""The timers of one step's keys: which fires next, and what calls set and cancel."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.handles import timer_state
from anabranch.operators.handles.context import Cursor
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import StateChanges
from anabranch.operators.timed import FrontierMove
from anabranch.operators.timers.due_timers import CLOCKS, TIMER_NAME, TIMER_VALUE, DueTimers
from anabranch.records.bins import Hashes
from anabranch.runs.changes import KeyChanges
from anabranch.runs.due import NEVER
from anabranch.runs.rows import Groups

MOST_ROUNDS = 1000
"""How many timers in a row may be set for a time that has passed, within one step."""

EVENT, STEP = CLOCKS.index("event"), CLOCKS.index("step")


class Timer(NamedTuple):
    """A timer of a key in a step. Its fields are in the order by which timers fire.

    ``clock`` is a place in ``CLOCKS``, ``time`` as in ``DueTimers``, ``place`` that of the key.
    ``round`` is how many timers, each set by the one before, led to it without time going on.
    """

    clock: int
    time: int
    asked: int
    place: int
    name: str
    round: int = 0


_Id: TypeAlias = tuple[int, int, str]
"""Clock, place of the key, and name: a key has one timer for each clock and name."""


class TimerBook:
    """The timers of the keys of a step.

    While ``firing``, a timer that is set for a time that is due already fires in this step. After
    that it waits for the next. When the input has ended, a name fires once more: a timer that sets
    itself again would never come to an end.
    """

    def __init__(
        self, groups: Groups, cursor: Cursor, frontier: FrontierMove, now_ns: int, *, timed: bool
    ) -> None:
        self._groups = groups
        self._cursor = cursor
        self._frontier = frontier
        self._now_ns = now_ns
        self._timed = timed
        #: those of the state, the next one last
        self._waiting: list[Timer] = []
        #: those that calls have set
        self._heap: list[Timer] = []
        #: what calls have made of timers; None: there is none any more
        self._changed: dict[_Id, Timer | None] = {}
        #: what the call has replaced
        self._replaced: list[tuple[_Id, Timer | None, bool]] = []
        self._fired: set[_Id] = set()
        self._current: Timer | None = None
        self.firing = True

    def take(self, due: DueTimers, places: Int64s) -> None:
        """Take the timers that fall due; ``places`` are those of their keys."""
        order = due.in_order(places)
        fields = (due.clocks, due.times, due.asked, places)
        columns = [column[order].tolist() for column in fields]
        names = due.names.take(pa.array(order)).to_pylist()
        self._waiting = list(map(Timer, *columns, names))[::-1]

    def fire(self) -> Iterator[Timer]:
        """Take out the timers that are due, one after the other, also those set meanwhile."""
        while (timer := self._next()) is not None:
            id = (timer.clock, timer.place, timer.name)
            # What lapses with the frontier needs no tombstone.
            if id in self._changed or not self._lapses(timer):
                self._changed[id] = None
            if self._frontier.ends:
                self._fired.add(id)
            self._current = timer
            yield timer
        self._current = None
        self.firing = False

    def begin(self) -> None:
        """Note that a call begins, which ``undo`` may take back."""
        self._replaced.clear()

    def undo(self) -> None:
        """Restore the timers as they were when the call began."""
        for id, before, was_changed in reversed(self._replaced):
            if was_changed:
                self._changed[id] = before
            else:
                self._changed.pop(id, None)
        self._replaced.clear()

    def set(self, asked: int, name: str, clock: Clock) -> None:
        """Set a timer of the key at the cursor, for a time in microseconds."""
        kind = CLOCKS.index(clock)
        id = (kind, self._cursor.place, name)
        time, passed = self._event_time(asked) if kind == EVENT else self._step_time(asked)
        timer = Timer(kind, time, asked, self._cursor.place, name, self._round(kind, passed))
        if not self.firing or not self._is_due(kind, asked):
            self._put(id, timer)
        elif id in self._fired:
            self._put(id, None)
        elif timer.round > MOST_ROUNDS:
            raise RuntimeError(
                f"timer {name!r} is set for a time that has passed again and again, "
                f"{MOST_ROUNDS:,} times in this step"
            )
        else:
            self._put(id, timer)
            heappush(self._heap, timer)

    def cancel(self, name: str) -> None:
        """Cancel the timers of this name of the key at the cursor."""
        for kind in (EVENT, STEP) if self._timed else (STEP,):
            self._put((kind, self._cursor.place, name), None)

    def changes(self, operator: str) -> dict[str, StateChanges]:
        """The changes of the timers, by state."""
        found = {}
        for kind, clock in enumerate(CLOCKS):
            changed = [(id, timer) for id, timer in self._changed.items() if id[0] == kind]
            if changed:
                found[timer_state(operator, clock)] = self._state_changes(changed)
        return found

    def overdue(self) -> Hashes:
        """The hashes of the keys of timers that were due when they were set; they fire next."""
        places = [
            timer.place
            for timer in self._changed.values()
            if timer is not None and self._is_due(timer.clock, timer.asked)
        ]
        return self._groups.hashes[np.array(places, dtype=np.int64)]

    def _state_changes(self, changed: list[tuple[_Id, Timer | None]]) -> StateChanges:
        places = np.array([id[1] for id, _ in changed], dtype=np.int64)
        names = pa.array([id[2] for id, _ in changed], type=pa.string())
        asked = pa.array([timer and timer.asked for _, timer in changed], type=pa.int64())
        # By event time a timer is due when the frontier has passed its time.
        dues = [timer and timer.time + (timer.clock == EVENT) for _, timer in changed]
        kind = TIMER_VALUE.field(0).type
        return StateChanges(
            KeyChanges(
                self._groups.hashes[places],
                self._groups.keys.take(pa.array(places)),
                pa.RecordBatch.from_arrays([asked.cast(kind)], schema=TIMER_VALUE),
                np.array([timer is None for _, timer in changed], dtype=np.bool_),
                pa.RecordBatch.from_arrays([names], schema=TIMER_NAME),
                pa.array(dues, type=pa.int64()),
            ),
            None,
        )

    def _next(self) -> Timer | None:
        """The next timer that no call has replaced; None if there is none."""
        while self._waiting or self._heap:
            if self._waiting and (not self._heap or self._waiting[-1] < self._heap[0]):
                timer = self._waiting.pop()
                if (timer.clock, timer.place, timer.name) not in self._changed:
                    return timer
            else:
                timer = heappop(self._heap)
                if self._changed.get((timer.clock, timer.place, timer.name)) is timer:
                    return timer
        return None

    def _put(self, id: _Id, timer: Timer | None) -> None:
        self._replaced.append((id, self._changed.get(id), id in self._changed))
        self._changed[id] = timer

    def _event_time(self, asked: int) -> tuple[int, bool]:
        """The event time of a timer, and whether it had passed.

        It is not before the frontier, or what a timer sets, not before that timer.
        """
        if self._current is None:
            return max(asked, self._cursor.frontier), asked < self._cursor.frontier
        return max(asked, self._cursor.time), asked <= self._cursor.time

    def _step_time(self, asked: int) -> tuple[int, bool]:
        """When a timer is due by the clock of the steps, and whether it had passed."""
        time = min(asked * 1000, NEVER - 1)
        if not self.firing:
            return max(time, self._now_ns + 1), time <= self._now_ns
        reached = self._current.time if self._current and self._current.clock == STEP else None
        return (time, False) if reached is None else (max(time, reached), time <= reached)

    def _is_due(self, kind: int, asked: int) -> bool:
        if self._frontier.ends:
            return True
        if kind == EVENT:
            return asked < self._frontier.until
        return asked * 1000 <= self._now_ns

    def _lapses(self, timer: Timer) -> bool:
        return timer.clock == EVENT and timer.time < self._frontier.until

    def _round(self, kind: int, passed: bool) -> int:
        current = self._current
        if current is None:
            return 0
        progress = kind == current.clock and not passed and not self._frontier.ends
        return 0 if progress else current.round + 1
