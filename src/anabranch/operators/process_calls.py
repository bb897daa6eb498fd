"""Calls of a user's ``process`` class in a step: what they return, change, and how they fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import bind_context
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import first_unfit, tuples_to_columns
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import function_failed, row_advice, short
from anabranch.operators.handles.bound_value import BoundValue
from anabranch.operators.handles.context import Cursor, EventContext, HandleContext
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.output_times import column_times, earliest_times, latest_times
from anabranch.operators.process import Bound, HandleSpec, ProcessOperator
from anabranch.operators.rows import (
    KeyedEntries,
    KeyRows,
    Rows,
    RowSpan,
    StateChanges,
    named_tuples,
    split_groups,
)
from anabranch.operators.stateful_map import pause_gc
from anabranch.operators.timed import FrontierMove, TimedEntries
from anabranch.operators.timers.process_times import ProcessTimes
from anabranch.operators.timers.timer_book import TimerBook
from anabranch.records.times import EARLIEST
from anabranch.runs.rows import Groups

CALLED_ROWS = 8192
"""About how many rows are turned into objects at a time."""


@dataclass(slots=True)
class CallRows:
    """The rows that calls returned: how many each did, for which key, and the times they may have.

    ``times`` is the event time of each call's rows, ``earliest`` what they must not be before.
    """

    rows: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    earliest: list[int] = field(default_factory=list)

    def add(self, place: int, made: Sequence[Any], time: int, earliest: int) -> None:
        """Add what a call for the key at a place returned."""
        if made:
            self.rows += made
            self.counts.append(len(made))
            self.places.append(place)
            self.times.append(time)
            self.earliest.append(earliest)

    def callers(self) -> Int64s:
        """The place of the key that each row was returned for."""
        return self.per_row(self.places)

    def per_row(self, of_calls: Sequence[int]) -> Int64s:
        """A number for each row, from a number for each call."""
        return np.repeat(np.array(of_calls, dtype=np.int64), self.counts)

    def digits(self) -> Int64s:
        """The number of each row among the rows of its call."""
        counts = np.array(self.counts, dtype=np.int64)
        return np.arange(len(self.rows)) - np.repeat(np.cumsum(counts) - counts, counts)


class ProcessCalls:
    """Calls one object of the user's class for the keys of a step.

    ``frontier`` is given if the operator has to do with time: then a key may be called several
    times, and ``cursor`` says at which time.
    """

    def __init__(
        self,
        operator: ProcessOperator,
        groups: Groups,
        states: Mapping[str, KeyedEntries],
        now_ns: int,
        dead: list[RowFailure] | None,
        frontier: FrontierMove | None = None,
    ) -> None:
        self._operator = operator
        self._dead = dead
        self._groups = groups
        self._frontier = frontier
        self._loaded: set[int] = set()
        self.cursor = Cursor()
        self._bound: dict[str, Bound] = {}
        try:
            self._object = operator.process()
        except Exception as error:
            raise self._function_error("__init__", None, error) from error
        for spec in operator.handles:
            setattr(self._object, spec.attribute, self._bind(spec, states))
        self._saved: BoundValue | None = None
        if operator.saved is not None:
            saved = self._bind(operator.saved, states)
            assert isinstance(saved, BoundValue)
            self._saved = saved
        timed = operator.timed
        self.timers: TimerBook | None = None
        if frontier is not None and operator.timer_clocks:
            self.timers = TimerBook(groups, self.cursor, frontier, now_ns, timed=timed)
        self.times = ProcessTimes(self.timers, self.cursor, now_ns, timed=timed)
        bind_context(self._object, self.times)

    def call_on_rows(self, rows: Rows, grouped: KeyRows, places: Int64s) -> Rows:
        """Call ``on_rows`` for all keys of the rows, which have these places; return the output."""
        starts, made = grouped.groups.starts, CallRows()
        times = None if rows.times is None else rows.times[grouped.parents]
        latest = [EARLIEST] * len(starts) if times is None else latest_times(times, starts).tolist()
        earliest = latest
        if times is not None and self._operator.time is not None:
            earliest = earliest_times(times, starts).tolist()
        with pause_gc():
            for part in split_groups(starts, len(rows), CALLED_ROWS):
                self._call_part(part, grouped, places, latest, earliest, made)
        # An output row takes the place of the first row of its key.
        leaders = np.zeros(len(self._groups), dtype=np.int64)
        leaders[places] = grouped.parents[starts]
        output = rows.children(self.table(made), leaders[made.callers()], made.digits())
        return output if times is None else replace(output, times=self.times_of(made, output))

    def keys(self, places: Int64s) -> Iterable[Any]:
        """The keys at these places, as the user's class gets them."""
        return named_tuples("Key", self._groups.keys.take(pa.array(places)))

    def call(
        self,
        method: str,
        place: int,
        key: Any,
        arguments: Sequence[Any],
        letters: Sequence[Any],
        made: CallRows,
        earliest: int | None = None,
    ) -> None:
        """Call a method for the key at a place; its rows are added to ``made``.

        If calls may fail, one that does changes nothing, and the rows ``letters`` are dead.
        ``earliest`` is the time that its output must not be before; None: the cursor's.
        """
        cursor = self.cursor
        cursor.place = place
        if earliest is None:
            earliest = cursor.time
        if self.timers is not None:
            self.timers.begin()
        try:
            rows = self._result(method, place, key, arguments, earliest)
        except Exception as error:
            if self._dead is None:
                raise self._function_error(method, key, error) from error
            self._undo(place)
            self._dead += [row_failure(self._operator.name, error, row, key) for row in letters]
            return
        made.add(place, rows, cursor.time, earliest)

    def table(self, made: CallRows) -> pa.Table:
        """The rows that calls returned, as columns."""
        schema = self._operator.output
        try:
            return pa.Table.from_arrays(tuples_to_columns(made.rows, schema), schema=schema)
        except Exception as error:
            raise self._unfit(made, error) from error

    def times_of(self, made: CallRows, output: Rows) -> Int64s:
        """The event times of the rows that calls returned."""
        name = self._operator.time
        if name is None:
            return made.per_row(made.times)
        return column_times(
            output.values.column(name),
            made.per_row(made.earliest),
            name,
            lambda place: self._where(int(made.callers()[place])),
        )

    def changes(self) -> dict[str, StateChanges]:
        """The changes of each state."""
        found = {} if self.timers is None else self.timers.changes(self._operator.name)
        for state, handle in self._bound.items():
            try:
                changes = handle.changes()
            except Exception as error:
                raise self._bad_state(state, error) from error
            if changes is not None:
                found[state] = changes
        return found

    def holds_state(self, place: int) -> bool:
        """Whether anything is kept of the key at a place, timers aside."""
        self.cursor.place = place
        return any(handle.holds() for handle in self._bound.values())

    def saved(self, place: int) -> bytes | None:
        """The saved state of the key at a place."""
        if self._saved is None:
            return None
        self.cursor.place = place
        saved: bytes | None = self._saved.get()
        return saved

    def save(self, place: int, state: bytes) -> None:
        """Replace the saved state of the key at a place."""
        assert self._saved is not None
        self.cursor.place = place
        self._saved.set(state)

    def mark_loaded(self, places: Iterable[int]) -> None:
        """Note that the object has the saved state of these keys."""
        self._loaded.update(places)

    def load(self, places: Iterable[int], keys: Iterable[Any]) -> None:
        """Let the object load the saved state of these keys, unless it has already."""
        for place, key in zip(places, keys, strict=True):
            self.cursor.place = place
            try:
                self._load(place, key)
            except Exception as error:
                raise self._function_error("load", key, error) from error

    def handle(self, method: str, argument: Any) -> None:
        """Call the method that handles a message, in which there is no key to set timers for."""
        closed, self.times.closed = self.times.closed, "there is no key"
        try:
            getattr(self._object, method)(argument)
        except Exception as error:
            raise self._function_error(method, None, error) from error
        finally:
            self.times.closed = closed

    def _call_part(
        self,
        part: RowSpan,
        grouped: KeyRows,
        places: Int64s,
        latest: list[int],
        earliest: list[int],
        made: CallRows,
    ) -> None:
        """Call ``on_rows`` for the keys of a part."""
        values = grouped.values.slice(part.first_row, part.last_row - part.first_row)
        rows = list(named_tuples("Row", values))
        span = slice(part.first_group, part.last_group)
        cuts = np.append(grouped.groups.starts[span], part.last_row) - part.first_row
        for place, key, (first, last), time, bound in zip(
            places[span].tolist(),
            self.keys(places[span]),
            pairwise(cuts.tolist()),
            latest[span],
            earliest[span],
            strict=True,
        ):
            some = rows[first:last]
            self.cursor.time = time
            self.call("on_rows", place, key, (some,), some, made, bound)

    def _bind(self, spec: HandleSpec, states: Mapping[str, KeyedEntries]) -> Bound:
        view = states[spec.state]
        context = HandleContext(view, self._groups, self.cursor, spec.codec, spec.ttl_ns)
        if spec.ttl_ns is not None and spec.clock == "event":
            assert self._frontier is not None
            context = EventContext.of(context, cast("TimedEntries", view), self._frontier.since)
        handle = spec.bind(context)
        self._bound[spec.state] = handle
        return handle

    def _result(
        self, method: str, place: int, key: Any, arguments: Sequence[Any], earliest: int
    ) -> list[Any]:
        """The rows that a call returns; if calls may fail, they are checked first."""
        self._load(place, key)
        made = _as_rows(getattr(self._object, method)(key, *arguments))
        if self._saved is not None:
            self._saved.set(self._object.save(key))
        if self._dead is not None:
            self._check(made, place, earliest)
        return made

    def _check(self, made: list[Any], place: int, earliest: int) -> None:
        """Raise if the rows or the state of a call do not fit."""
        operator = self._operator
        columns = tuples_to_columns(made, operator.output)
        if operator.time is not None:
            column = columns[operator.output.get_field_index(operator.time)]
            bounds = np.full(len(made), earliest, dtype=np.int64)
            column_times(column, bounds, operator.time, lambda _: self._where(place))
        for handle in self._bound.values():
            handle.check(place)
        if self._frontier is not None:
            for handle in self._bound.values():
                handle.keep(place)

    def _undo(self, place: int) -> None:
        """Take back what the call for the key at a place has changed."""
        for handle in self._bound.values():
            handle.undo(place)
        if self.timers is not None:
            self.timers.undo()
        # What the object has in mind of the key may be half of what it should be.
        self._loaded.discard(place)

    def _load(self, place: int, key: Any) -> None:
        if self._saved is None or place in self._loaded:
            return
        if (saved := self._saved.get()) is not None:
            self._object.load(key, saved)
        self._loaded.add(place)

    def _where(self, place: int) -> str:
        (key,) = self.keys(np.array([place]))
        return f"operator {self._operator.name}, {short(key)}"

    def _function_error(self, method: str, key: Any, error: Exception) -> UserFunctionFailed:
        named = "" if key is None else f", {short(key)}"
        function = getattr(self._operator.process, method)
        return function_failed(function, error, f"operator {self._operator.name}{named}")

    def _unfit(self, made: CallRows, error: Exception) -> OutputMismatch:
        schema = self._operator.output
        place = first_unfit(made.rows, lambda row: tuples_to_columns([row], schema))
        return OutputMismatch(
            f"{self._operator.process.__qualname__} returned the row {short(made.rows[place])}, "
            f"which does not fit the output schema ({to_ddl(schema)}): {error}",
            where=self._where(int(made.callers()[place])),
            do=f"Return None or rows: {row_advice(made.rows[place], schema)}",
        )

    def _bad_state(self, state: str, error: Exception) -> OutputMismatch:
        return OutputMismatch(
            f"{self._operator.process.__qualname__} set a value that does not fit the schema of "
            f"{state!r}: {error}",
            where=f"operator {self._operator.name}",
            do="Set values that fit, or change the handle's schema.",
        )


def _as_rows(result: Any) -> list[Any]:
    """The result of a call as rows: None is no row, a tuple is one."""
    if result is None:
        return []
    return [result] if isinstance(result, tuple) else list(result)
