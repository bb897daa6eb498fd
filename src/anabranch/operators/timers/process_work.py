"""The work of a ``process`` in a step: its calls in their order, over some of the step's keys.

First come the rows that notifications upstream made, at the frontier of the step before. Then the
timers that are due, in the order of their times, each at the frontier just after its time. Then, at
the frontier of the step, its own rows. If the input has ended, the keys are told so at last. So
what a key's calls see depends neither on workers nor on how far the frontier moves at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.order.fired_order import fired_order
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.process import ProcessOperator
from anabranch.operators.process_calls import CallRows, ProcessCalls
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges, concat_batches, group_rows
from anabranch.operators.stateful_map import pause_gc
from anabranch.operators.timed import FrontierMove
from anabranch.operators.timers.due_timers import DueTimers
from anabranch.operators.timers.step_parts import StepParts
from anabranch.operators.timers.timer_book import EVENT, Timer, TimerBook
from anabranch.records.bins import Hashes
from anabranch.records.times import EARLIEST, END_OF_TIME, to_datetime
from anabranch.runs.rows import Groups, group_keys

_NOT_MOVED = FrontierMove(EARLIEST, EARLIEST)


class ProcessWork:
    """One operator's calls for some keys of a step: those of ``parts``, and ``more``.

    ``frontier`` is None if the operator has nothing to do with time.
    """

    def __init__(
        self,
        operator: ProcessOperator,
        parts: StepParts,
        states: Mapping[str, KeyedEntries],
        now_ns: int,
        *,
        dead: list[RowFailure] | None = None,
        frontier: FrontierMove | None = None,
        more: Iterable[Groups] = (),
    ) -> None:
        self._operator = operator
        self._parts = parts
        self._frontier = _NOT_MOVED if frontier is None else frontier
        self._fired = None if parts.fired is None else group_rows(parts.fired)
        self._data = None if parts.data is None else group_rows(parts.data)
        self.groups, self._places = _union(
            None if self._fired is None else self._fired.groups,
            parts.due,
            None if self._data is None else self._data.groups,
            parts.ending,
            *more,
        )
        self.calls = ProcessCalls(operator, self.groups, states, now_ns, dead, frontier)
        self.calls.cursor.frontier = self._frontier.since
        #: how far the frontier of a key has come with its timers
        self._reached: dict[int, int] = {}

    def run(self) -> Rows | None:
        """Make all calls; return their output."""
        parts, calls = self._parts, self.calls
        output = []
        if parts.fired is not None and self._fired is not None:
            output.append(calls.call_on_rows(parts.fired, self._fired, self._places[0]))
        if calls.timers is not None:
            output.append(self._fire(calls.timers))
        calls.cursor.frontier = self._frontier.until
        if parts.data is not None and self._data is not None:
            output.append(calls.call_on_rows(parts.data, self._data, self._places[2]))
        if parts.ends:
            output.append(self._end())
        filled = [rows for rows in output if len(rows)] or output[:1]
        return concat_batches(filled) if filled else None

    def changes(self) -> dict[str, StateChanges]:
        """The changes of each state."""
        return self.calls.changes()

    def overdue(self) -> Hashes:
        """The hashes of keys with a timer that was due when it was set."""
        timers = self.calls.timers
        return self.groups.hashes[:0] if timers is None else timers.overdue()

    def _fire(self, timers: TimerBook) -> Rows:
        """Call ``on_notify`` for the timers that are due, also for those set meanwhile."""
        calls, made = self.calls, CallRows()
        if self._parts.due is not None:
            timers.take(self._parts.due, self._places[1])
        keys: list[Any] = []
        with pause_gc():
            for timer in timers.fire():
                keys = keys or list(calls.keys(np.arange(len(self.groups))))
                key, at = keys[timer.place], to_datetime(timer.asked)
                self._move_to(timer)
                letter = {"at": at, "timer": timer.name}
                calls.call("on_notify", timer.place, key, (at, timer.name), [letter], made)
        return self._output(made, made.per_row(made.times))

    def _move_to(self, timer: Timer) -> None:
        """Move the frontier of a key on to just after a timer's time.

        A timer by the clock of the steps has no event time: what it makes has the frontier's.
        """
        cursor, until = self.calls.cursor, self._frontier.until
        if timer.clock == EVENT:
            cursor.time, cursor.frontier = timer.time, min(timer.time + 1, until)
            self._reached[timer.place] = cursor.frontier
        elif self._frontier.ends:
            self._move_to_end(timer.place)
        else:
            cursor.time = cursor.frontier = until

    def _move_to_end(self, place: int) -> None:
        """Move the frontier of a key on to where it was when the input ended, not to infinity."""
        cursor = self.calls.cursor
        cursor.time = cursor.frontier = self._reached.get(place, self._frontier.since)

    def _end(self) -> Rows:
        """Call ``on_end`` for all keys of which something is kept."""
        calls, made = self.calls, CallRows()
        calls.times.closed = "the input has ended"
        with pause_gc():
            for place, key in enumerate(calls.keys(np.arange(len(self.groups)))):
                self._move_to_end(place)
                if calls.holds_state(place):
                    calls.call("on_end", place, key, (), [None], made)
        # After all timers.
        return self._output(made, np.full(len(made.rows), END_OF_TIME, dtype=np.int64))

    def _output(self, made: CallRows, moments: Int64s) -> Rows:
        """The rows that calls for timers and for the end returned, in the order of moments."""
        callers = made.callers()
        hashes, keys = self.groups.hashes[callers], self.groups.keys.take(pa.array(callers))
        order = fired_order(self._operator.name, moments, hashes)
        rows = Rows(self.calls.table(made), hashes, pa.Table.from_batches([keys]), order)
        if not self._operator.timed:
            return rows
        fired = np.ones(len(rows), dtype=np.bool_)
        return replace(rows, times=self.calls.times_of(made, rows), fired=fired)


def _union(*parts: Groups | DueTimers | None) -> tuple[Groups, list[Int64s]]:
    """The distinct keys of all parts, sorted, and the places of each part's keys among them."""
    given = [part for part in parts if part is not None]
    ends = np.cumsum([0 if part is None else len(part) for part in parts])
    if len(given) == 1 and isinstance(given[0], Groups):
        return given[0], np.split(np.arange(len(given[0])), ends[:-1])
    tables = [
        pa.Table.from_batches([part.keys]) if isinstance(part, Groups) else part.keys
        for part in given
    ]
    keys = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    union = group_keys(np.concatenate([part.hashes for part in given]), keys)
    return union, np.split(union.group_of_row, ends[:-1])
