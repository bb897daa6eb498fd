"""The window join: rows of one key that are in one window, when the window closes.

With sliding windows, two rows meet once in each window that they share. A row is held until the end
of its last window, which is when it falls due. So a closing window is made of the rows that fall
due now, and of those that fall due up to a window's length later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import OUTER_SIDES, SIDE, JoinKind, JoinSide, side_state
from anabranch.operators.arrivals import Arrivals, split_late
from anabranch.operators.due_entries import DueEntries, due_entries
from anabranch.operators.joins.columns import NO_ROW, JoinColumns, PlacedRows
from anabranch.operators.joins.side_rows import (
    NumberedKeys,
    SideRows,
    arrived_rows,
    concat_sides,
    number_keys,
    rows_due,
    side_shape,
)
from anabranch.operators.order.fired_order import as_fired
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.order.sort_columns import ranks
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timeline import expand_ranges
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.window_state import windows_text
from anabranch.runs.rows import Groups


class WindowJoin(msgspec.Struct, frozen=True):
    """The operator: its output has the columns of both rows and, if asked for, of the window."""

    name: str
    columns: JoinColumns
    windows: Panes
    how: JoinKind = "inner"

    @property
    def lag_us(self) -> int:
        """How far the times of its output may be behind its frontier."""
        return 0

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Its states: the rows of each side."""
        kind = f"{self.how} join over {windows_text(self.windows)}"
        return tuple(
            side_shape(self.name, side, self.columns, kind, dues=True) for side in JoinSide
        )

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The last microsecond of the next window that closes."""
        return self.windows.earliest_end(dues, frontier) - 1

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Join the rows of closing windows, then hold those that have open ones."""
        arrived, late = split_late(rows, frontier.until, ties=SIDE)
        last = frontier.until + self._reach
        held = [states[side_state(self.name, side)] for side in JoinSide]
        due = [due_entries(state.due(frontier.since, last)) for state in held]
        keys = number_keys(arrived, due)
        if keys is None:
            return TimedResult(late=late)
        step = held[0].step
        left, right = (self._rows(side, arrived, due[side], keys, step) for side in JoinSide)
        output = self._close(keys.groups, left, right, frontier)
        changes = {}
        for side, each in zip(JoinSide, (left, right), strict=True):
            changed = self._changes(keys.groups, each, frontier.until)
            if changed is not None:
                changes[side_state(self.name, side)] = changed
        return TimedResult(output, late, changes)

    @property
    def _reach(self) -> int:
        """How much later than one of its windows the last window of a row may close."""
        return (self.windows.length - 1) // self.windows.every * self.windows.every

    def _rows(
        self,
        side: JoinSide,
        arrived: Arrivals | None,
        due: DueEntries | None,
        keys: NumberedKeys,
        step: int,
    ) -> SideRows:
        """The rows of a side that may be in closing windows, and those that have come."""
        parts = [] if due is None else [rows_due(due, keys.due[side])]
        if arrived is not None:
            parts.append(arrived_rows(self.columns, side, arrived, keys.arrived, step))
        return concat_sides(self.columns.of(side), parts)

    def _close(
        self, groups: Groups, left: SideRows, right: SideRows, frontier: FrontierMove
    ) -> Rows | None:
        """The output of the windows that close."""
        lefts, rights = _closing(self.windows, left, right, frontier)
        pairs = _pairs(lefts, rights, OUTER_SIDES[self.how])
        if not len(pairs.ends):
            return None
        number = pa.array(pairs.keys)
        keys = pa.Table.from_batches([groups.keys.take(number)])
        starts = pairs.ends - self.windows.length
        values = self.columns.joined(
            keys,
            PlacedRows(left.values, pairs.lefts),
            PlacedRows(right.values, pairs.rights),
            pa.table({"start": starts, "end": pairs.ends}),
        )
        rows = Rows(values, groups.hashes[pairs.keys], keys, times=pairs.ends - 1)
        return as_fired(self.name, rows)

    def _changes(self, groups: Groups, rows: SideRows, frontier: int) -> StateChanges | None:
        """Hold the rows that have come and have windows that are still open."""
        due = self.windows.last_end(self.windows.pane_of(rows.times))
        kept = np.flatnonzero(~rows.held & (due > frontier))
        return rows.changes(groups, kept, pa.array(due[kept])) if len(kept) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Closing:
    """Rows of a side in closing windows, once for each window, sorted by key, window and time.

    ``places`` are theirs among the rows of the side. Rows of both sides that are of one key and in
    one window are in one cell.
    """

    places: Int64s
    keys: Int64s
    ends: Int64s
    cells: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """What comes out: the places of both rows, ``NO_ROW`` for none, with key and window."""

    lefts: Int64s
    rights: Int64s
    keys: Int64s
    ends: Int64s


def _closing(
    windows: Panes, left: SideRows, right: SideRows, frontier: FrontierMove
) -> tuple[_Closing, _Closing]:
    found = []
    for side in (left, right):
        panes = windows.pane_of(side.times)
        places, ends = windows.closing(panes, frontier.since, frontier.until)
        found.append((side, places, side.keys[places], ends))
    keys, ends = (np.concatenate([each[part] for each in found]) for part in (2, 3))
    cells = np.split(ranks([keys, ends], len(keys)), [len(found[0][1])])
    return _sorted(*found[0], cells[0]), _sorted(*found[1], cells[1])


def _sorted(side: SideRows, places: Int64s, keys: Int64s, ends: Int64s, cells: Int64s) -> _Closing:
    order = np.lexsort((side.places[places], side.steps[places], side.times[places], cells))
    return _Closing(places[order], keys[order], ends[order], cells[order])


def _pairs(left: _Closing, right: _Closing, outer: tuple[JoinSide, ...]) -> _Pairs:
    """All pairs of each window, then the rows of outer sides that have no partner in it."""
    starts = np.searchsorted(right.cells, left.cells)
    stops = np.searchsorted(right.cells, left.cells, side="right")
    asked, found = expand_ranges(starts, stops)
    parts = [_Pairs(left.places[asked], right.places[found], left.keys[asked], left.ends[asked])]
    if JoinSide.LEFT in outer:
        lone = np.flatnonzero(starts == stops)
        none = np.full(len(lone), NO_ROW, dtype=np.int64)
        parts.append(_Pairs(left.places[lone], none, left.keys[lone], left.ends[lone]))
    if JoinSide.RIGHT in outer:
        lone = np.flatnonzero(~np.isin(right.cells, left.cells))
        none = np.full(len(lone), NO_ROW, dtype=np.int64)
        parts.append(_Pairs(none, right.places[lone], right.keys[lone], right.ends[lone]))
    return _Pairs(
        np.concatenate([part.lefts for part in parts]),
        np.concatenate([part.rights for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.ends for part in parts]),
    )
