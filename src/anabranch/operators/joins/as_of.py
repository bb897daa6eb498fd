"""The as-of join: for each left row the last right row of its key at or before its time.

A left row waits until the frontier has passed its time: then no earlier right row can come. A right
row is held until the frontier reaches its successor: later left rows match that one, or one after
it. So at most one right row of a key is earlier than the frontier.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import SIDE, JoinSide, LeftJoinKind, side_state
from anabranch.operators.arrivals import Arrivals, due_after, split_late
from anabranch.operators.due_entries import DueEntries, due_entries
from anabranch.operators.joins.columns import NO_ROW, JoinColumns, PlacedRows
from anabranch.operators.joins.side_rows import (
    NumberedKeys,
    SideRows,
    arrived_rows,
    concat_sides,
    held_rows,
    number_keys,
    rows_due,
    side_shape,
)
from anabranch.operators.order.fired_order import as_fired
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timeline import Timeline
from anabranch.runs.due import NEVER
from anabranch.runs.rows import Groups

LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT


class AsOfJoin(msgspec.Struct, frozen=True):
    """The operator: with ``tolerance_us``, a right row that is further back does not match.

    Of several right rows at one time, the last to come counts.
    """

    name: str
    columns: JoinColumns
    tolerance_us: int | None = None
    how: LeftJoinKind = "inner"

    @property
    def lag_us(self) -> int:
        """How far the times of its output may be behind its frontier."""
        return 0

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Its states: left rows that wait, and right rows that left rows may still match."""
        kind = f"{self.how} join_as_of, tolerance {self.tolerance_us}"
        return tuple(
            side_shape(self.name, side, self.columns, kind, dues=side is LEFT) for side in JoinSide
        )

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The time of the earliest left row that waits."""
        return dues - 1

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Match the left rows that the frontier has passed; hold the others, and right rows."""
        arrived, late = split_late(rows, frontier.until, ties=SIDE)
        lefts, rights = (side_state(self.name, side) for side in JoinSide)
        waited = due_entries(states[lefts].due(frontier.since, frontier.until))
        keys = number_keys(arrived, [waited])
        if keys is None:
            return TimedResult(late=late)
        state = states[rights]
        left = self._left(arrived, waited, keys, state.step)
        due = due_after(left.times, 0)
        ready = np.flatnonzero(due <= frontier.until)
        right = self._right(arrived, left.keys[ready], keys, frontier.since, state)
        line = Timeline(right.keys, right.times, right.steps, right.places)
        output = self._matched(keys.groups, left, ready, right, line)
        changes: dict[str, StateChanges] = {}
        kept = np.flatnonzero(due > frontier.until)
        if len(kept):
            changes[lefts] = left.changes(keys.groups, kept, pa.array(due[kept]))
        changed = self._right_changes(keys.groups, right, line, frontier.until)
        if changed is not None:
            changes[rights] = changed
        return TimedResult(output, late, changes)

    def _left(
        self, arrived: Arrivals | None, waited: DueEntries | None, keys: NumberedKeys, step: int
    ) -> SideRows:
        """The left rows that fall due, and those that have come."""
        parts = [] if waited is None else [rows_due(waited, keys.due[0])]
        if arrived is not None:
            parts.append(arrived_rows(self.columns, LEFT, arrived, keys.arrived, step))
        return concat_sides(self.columns.left, parts)

    def _right(
        self,
        arrived: Arrivals | None,
        ready: Int64s,
        keys: NumberedKeys,
        frontier: int,
        state: TimedEntries,
    ) -> SideRows:
        """The right rows that have come, and what is held of their keys and of those ``ready``."""
        parts = []
        touched = ready
        if arrived is not None:
            new = arrived_rows(self.columns, RIGHT, arrived, keys.arrived, state.step)
            touched = np.concatenate([ready, new.keys])
            parts.append(new)
        parts.append(held_rows(state, keys.groups, np.unique(touched), frontier))
        return concat_sides(self.columns.right, parts)

    def _matched(
        self, groups: Groups, left: SideRows, ready: Int64s, right: SideRows, line: Timeline
    ) -> Rows | None:
        """Left rows, each with the last right row up to its time."""
        order = (left.places[ready], left.steps[ready], left.times[ready], left.keys[ready])
        ready = ready[np.lexsort(order)]
        keys, times = left.keys[ready], left.times[ready]
        found = np.full(len(ready), NO_ROW, dtype=np.int64)
        last = line.up_to(keys, times) - 1
        some = np.flatnonzero(last >= 0)
        partner = line.order[last[some]]
        fits = right.keys[partner] == keys[some]
        if self.tolerance_us is not None:
            fits &= times[some] - right.times[partner] <= self.tolerance_us
        found[some[fits]] = partner[fits]
        if self.how == "inner":
            matched = found != NO_ROW
            ready, keys, times, found = (p[matched] for p in (ready, keys, times, found))
        if not len(ready):
            return None
        key_columns = pa.Table.from_batches([groups.keys.take(pa.array(keys))])
        values = self.columns.joined(
            key_columns, PlacedRows(left.values, ready), PlacedRows(right.values, found)
        )
        return as_fired(self.name, Rows(values, groups.hashes[keys], key_columns, times=times))

    def _right_changes(
        self, groups: Groups, right: SideRows, line: Timeline, frontier: int
    ) -> StateChanges | None:
        """Hold new right rows until their successor's time, and held ones until a new one's."""
        here, after = line.order[:-1], line.order[1:]
        same = right.keys[here] == right.keys[after]
        here, after = here[same], after[same]
        expiry = np.full(len(right), NEVER, dtype=np.int64)
        expiry[here] = right.times[after]
        if self.tolerance_us is not None:
            expiry = np.minimum(expiry, due_after(right.times, self.tolerance_us))
        replaced = np.zeros(len(right), dtype=np.bool_)
        replaced[here] = ~right.held[after]
        chosen = np.flatnonzero(np.where(right.held, replaced, expiry > frontier))
        if not len(chosen):
            return None
        until = expiry[chosen]
        return right.changes(
            groups, chosen, pa.array(until, mask=until == NEVER), gone=until <= frontier
        )
