"""The timers of an operator that fall due in a step, as they stand in its state.

Each clock has a state of its own: key, name, the time that was asked for, and the time from which
on the timer is due. By event time that is the microsecond after the timer's time; by the clock of
the steps it is the time itself, in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.handles import timer_state
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.timed import FrontierMove, TimedEntries
from anabranch.records.bins import Hashes, Mask
from anabranch.records.layout import EXPIRY, KEY_PREFIX, SUBKEY_PREFIX, VALUE_PREFIX
from anabranch.runs.due import NEVER
from anabranch.runs.sorted_rows import hash_column

CLOCKS: tuple[Clock, ...] = ("event", "step")
"""The clocks, in the order in which their timers fire."""

TIMER_NAME = pa.schema([pa.field("name", pa.string())])
"""The sub-key of a timer."""

TIMER_VALUE = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC"))])
"""The value of a timer: the time that was asked for."""

_LONG_AGO = -(1 << 62)


@dataclass(frozen=True, slots=True, eq=False)
class DueTimers:
    """Timers that fire in a step, sorted by hash and key within each clock.

    ``clocks`` are places in ``CLOCKS``, ``asked`` the times that were asked for, in microseconds.
    ``times`` is what timers are ordered by: their event time, which for a time that had passed is
    the frontier at which it was asked for; or by the clock of the steps, nanoseconds.
    """

    hashes: Hashes
    keys: pa.Table
    clocks: Int64s
    names: pa.ChunkedArray
    asked: Int64s
    times: Int64s

    def __len__(self) -> int:
        return len(self.hashes)

    def select(self, some: Mask) -> DueTimers:
        """Some of the timers."""
        mask = pa.array(some)
        return DueTimers(
            self.hashes[some],
            self.keys.filter(mask),
            self.clocks[some],
            self.names.filter(mask),
            self.asked[some],
            self.times[some],
        )

    def in_order(self, places: Int64s) -> Int64s:
        """The order in which timers fire whose keys have these places: clock, time, key, name."""
        ranks = pc.rank(self.names, tiebreaker="dense").to_numpy()
        return np.lexsort((ranks, places, self.asked, self.times, self.clocks))


def due_timers(
    operator: str, frontier: FrontierMove, now_ns: int, states: Mapping[str, TimedEntries]
) -> DueTimers | None:
    """The timers of an operator that fire in a step; None if none do."""
    parts = []
    for place, clock in enumerate(CLOCKS):
        state = states.get(timer_state(operator, clock))
        if state is not None:
            found = _by_event if clock == "event" else _by_step
            parts += [_timers(place, rows) for rows in found(state, frontier, now_ns)]
    return _concatenated(parts) if parts else None


def _by_event(state: TimedEntries, frontier: FrontierMove, _: int) -> Iterator[pa.RecordBatch]:
    since, until = frontier.since, frontier.until
    # A time that had passed is due in the next step, whether or not the frontier moves on.
    for rows in state.due(since, max(until, since + 1)):
        due, asked = _numbers(rows, EXPIRY), _numbers(rows, VALUE_PREFIX + "at")
        yield rows.filter(pa.array((due <= until) | (asked < since)))


def _by_step(state: TimedEntries, frontier: FrontierMove, now_ns: int) -> Iterator[pa.RecordBatch]:
    # Whoever fires leaves a tombstone: how far the step before has come is not known here.
    return state.due(_LONG_AGO, NEVER - 1 if frontier.ends else now_ns)


def _timers(clock: int, rows: pa.RecordBatch) -> DueTimers:
    keys = [name for name in rows.schema.names if name.startswith(KEY_PREFIX)]
    columns = pa.Table.from_batches([rows.select(keys)])
    due = _numbers(rows, EXPIRY)
    return DueTimers(
        hash_column(rows),
        columns.rename_columns([name[len(KEY_PREFIX) :] for name in keys]),
        np.full(rows.num_rows, clock, dtype=np.int64),
        pa.chunked_array([rows.column(SUBKEY_PREFIX + "name")]),
        _numbers(rows, VALUE_PREFIX + "at"),
        due - 1 if CLOCKS[clock] == "event" else due,
    )


def _numbers(rows: pa.RecordBatch, column: str) -> Int64s:
    numbers: Int64s = rows.column(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _concatenated(parts: Iterable[DueTimers]) -> DueTimers | None:
    filled = [part for part in parts if len(part)]
    if not filled:
        return None
    return DueTimers(
        np.concatenate([part.hashes for part in filled]),
        pa.concat_tables([part.keys for part in filled]),
        np.concatenate([part.clocks for part in filled]),
        pa.chunked_array([chunk for part in filled for chunk in part.names.chunks]),
        np.concatenate([part.asked for part in filled]),
        np.concatenate([part.times for part in filled]),
    )
