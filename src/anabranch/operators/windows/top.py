"""``top``: the first rows of each key by an order, of each window or of all rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.order_by import OrderColumn
from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s, begins, digits_of
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges, concat_batches, expiry_times
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.arrivals import fired_rows, ordered_rows
from anabranch.operators.windows.contents import KeyedWindows, put_contents, take_contents
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.top_contents import TopContents, by_text
from anabranch.operators.windows.window_state import window_holds, window_shape
from anabranch.operators.windows.window_step import window_step
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.rows import Groups, group_keys


class TopRows(msgspec.Struct, frozen=True):
    """Which rows are the first: how many, by which columns, and whether ties count."""

    count: int
    by: tuple[OrderColumn, ...]
    ties: bool
    rows: pa.Schema
    output: pa.Schema

    def contents(self, operator: str) -> TopContents:
        """The contents of windows."""
        return TopContents(operator, self.count, self.by, self.ties, self.rows, self.output)

    @property
    def text(self) -> str:
        """The kind of the state: with another, other rows would have been kept."""
        return f"top({self.count}, by {by_text(self.by)}{', ties' if self.ties else ''})"


class WindowedTop(msgspec.Struct, frozen=True):
    """The operator over windows: it outputs their first rows when they close."""

    name: str
    windows: Panes | SessionGap
    top: TopRows
    keys: pa.Schema

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """A row for each pane or session of a key."""
        state = self.top.contents(self.name).state
        return (window_shape(self.name, self.top.text, self.windows, state),)

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Process a step."""
        contents, state = self.top.contents(self.name), states[self.name]
        return window_step(
            self.name, self.windows, contents, self.keys.names, rows, frontier, state
        )

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The last microsecond of the next window that closes."""
        return window_holds(self.windows, dues, frontier)


class RunningTop(msgspec.Struct, frozen=True):
    """The operator without windows: it outputs the first rows of every key whose a step changed.

    Rows that notifications upstream made come before the others, as if in a step of their own.
    """

    name: str
    top: TopRows
    ttl_ns: int | None = None

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """A row for each key."""
        state = self.top.contents(self.name).state
        expires = self.ttl_ns is not None
        return (StateShape(self.name, self.top.text, state, expires=expires),)

    def run(self, given: Rows, state: KeyedEntries) -> tuple[Rows, StateChanges | None]:
        """Add the rows; return the new first rows of changed keys, and the changed state."""
        rows = ordered_rows(given)
        assert rows is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        groups = group_keys(rows.hashes, rows.keys)
        held = state.find(groups.hashes, groups.keys)
        run = _TopRun(self.top.contents(self.name), rows, groups, held.values.columns)
        fired = fired_rows(rows)
        output = [run.add(chosen) for chosen in (fired, ~fired) if chosen.any()]
        kept = run.changed if self.ttl_ns is None else np.ones(len(groups), dtype=np.bool_)
        return concat_batches(output), self._changes(run, np.flatnonzero(kept), held.present, state)

    def _changes(
        self, run: _TopRun, places: Int64s, present: Mask, state: KeyedEntries
    ) -> StateChanges | None:
        if not len(places):
            return None
        changed = KeyChanges(
            run.groups.hashes[places],
            run.groups.keys.take(pa.array(places)),
            pa.RecordBatch.from_arrays(take_contents(run.state, places), schema=run.contents.state),
            np.zeros(len(places), dtype=np.bool_),
            expiry=expiry_times(len(places), state.now_ns, self.ttl_ns),
        )
        return StateChanges(changed, present[places])


@dataclass
class _TopRun:
    """The first rows of the keys that a step touches, and which keys have others than before."""

    contents: TopContents
    rows: Rows
    groups: Groups
    state: State
    changed: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.changed = np.zeros(len(self.groups), dtype=np.bool_)

    def add(self, chosen: Mask) -> Rows:
        """Add the chosen rows; return the new first rows of the keys that they changed."""
        rows, groups = self.rows, self.groups
        places = groups.order[chosen[groups.order]]
        key_of_row = groups.group_of_row[places]
        starts = np.flatnonzero(begins(key_of_row))
        touched = key_of_row[starts]
        added = self.contents.reduce(rows.values, places, starts)
        merged, grown = self.contents.merge_marked(take_contents(self.state, touched), added)
        self.state = put_contents(self.state, touched, merged)
        self.changed[touched[grown]] = True
        latest = None if rows.times is None else np.maximum.reduceat(rows.times[places], starts)
        fired = bool(rows.fired is not None and rows.fired[places[0]])
        return self._output(
            touched[grown],
            places[starts][grown],
            None if latest is None else latest[grown],
            fired=fired,
        )

    def _output(self, keys: Int64s, first: Int64s, times: Int64s | None, *, fired: bool) -> Rows:
        """All first rows of some keys, with the order of the first row that changed them."""
        hashes, key = self.groups.hashes[keys], self.groups.keys.take(pa.array(keys))
        never = np.zeros(len(keys), dtype=np.int64)
        windows = KeyedWindows(hashes, key, never, never, take_contents(self.state, keys))
        values, owner = self.contents.output(windows)
        assert owner is not None
        order = self.rows.order
        return Rows(
            values,
            hashes[owner],
            pa.Table.from_batches([key.take(pa.array(owner))]),
            None if order is None else order.child(first[owner], digits_of(owner)),
            None if times is None else times[owner],
            np.ones(len(owner), dtype=np.bool_) if fired else None,
        )
