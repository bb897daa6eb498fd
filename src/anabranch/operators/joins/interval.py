"""The interval join: rows of one key whose times are no further apart than it allows.

A match is made of the later of its two rows, as soon as that comes. A row of an outer side that has
no match waits until the frontier has passed its last possible partner.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import (
    OUTER_SIDES,
    SIDE,
    JoinKind,
    JoinSide,
    side_state,
    waiting_state,
)
from anabranch.operators.arrivals import Arrivals, due_after, split_late
from anabranch.operators.joins.columns import JoinColumns, PlacedRows
from anabranch.operators.joins.matching import Matches, joined_rows, lone_values, match_within
from anabranch.operators.joins.side_rows import (
    ROW_PLACE,
    arrived_rows,
    concat_sides,
    held_rows,
    side_shape,
)
from anabranch.operators.joins.waiting import MetRows, waited_in_vain, waiting_changes
from anabranch.operators.order.fired_order import as_fired
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows, StateChanges, concat_batches, concat_some
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.runs.changes import identity
from anabranch.runs.rows import Groups

States = Mapping[str, TimedEntries]


class IntervalJoin(msgspec.Struct, frozen=True):
    """The operator: a right row matches left rows from ``lower_us`` to ``upper_us`` before it."""

    name: str
    columns: JoinColumns
    lower_us: int
    upper_us: int
    how: JoinKind = "inner"

    @property
    def lag_us(self) -> int:
        """How far the times of its output may be behind its frontier."""
        return max([0, *map(self._wait, OUTER_SIDES[self.how])])

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Its states: the rows of each side, and which of an outer side have no match."""
        kind = f"{self.how} join within ({self.lower_us}, {self.upper_us})"
        held = (side_shape(self.name, side, self.columns, kind) for side in JoinSide)
        waiting = (
            StateShape(
                waiting_state(self.name, side),
                kind,
                pa.schema([]),
                ROW_PLACE,
                expires=True,
                clock="event",
                dues=True,
            )
            for side in OUTER_SIDES[self.how]
        )
        return (*held, *waiting)

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The time before which nothing comes out of what waits, but for ``lag_us``."""
        return dues - 1

    def step(self, rows: Rows | None, frontier: FrontierMove, states: States) -> TimedResult:
        """Match the rows with those held and with each other; emit rows that stay alone."""
        arrived, late = split_late(rows, frontier.until, ties=SIDE)
        made: list[Rows] = []
        changes: dict[str, StateChanges] = {}
        met: dict[JoinSide, MetRows] = {}
        if arrived is not None:
            matches = self._match(arrived, frontier, states)
            met = {side: self._met(side, matches, arrived.groups) for side in JoinSide}
            lone = {side: met[side].lone(frontier.until) for side in OUTER_SIDES[self.how]}
            made.append(joined_rows(self.columns, arrived, matches, lone))
            changes = self._changes(met, frontier, states)
        fired = [
            part
            for side in OUTER_SIDES[self.how]
            if (part := self._fire(side, met.get(side), frontier, states)) is not None
        ]
        if fired:
            made.append(as_fired(self.name, concat_batches(fired)))
        return TimedResult(concat_some(made), late, changes)

    def _match(self, arrived: Arrivals, frontier: FrontierMove, states: States) -> Matches:
        groups, sides = arrived.groups, []
        for side in JoinSide:
            state = states[side_state(self.name, side)]
            # What is due in this step may still match rows that notifications upstream made.
            held = held_rows(state, groups, np.arange(len(groups)), frontier.since)
            new = arrived_rows(self.columns, side, arrived, groups.group_of_row, state.step)
            sides.append(concat_sides(self.columns.of(side), [held, new]))
        left, right = sides
        return match_within(left, right, self.lower_us, self.upper_us)

    def _met(self, side: JoinSide, matches: Matches, groups: Groups) -> MetRows:
        rows = matches.of(side)
        return MetRows(groups, rows, due_after(rows.times, self._wait(side)), matches.matched(side))

    def _changes(
        self, met: Mapping[JoinSide, MetRows], frontier: FrontierMove, states: States
    ) -> dict[str, StateChanges]:
        changes: dict[str, StateChanges] = {}
        for side, each in met.items():
            kept = each.kept(frontier.until)
            if len(kept):
                expiry = pa.array(each.due[kept])
                changes[side_state(self.name, side)] = each.rows.changes(each.groups, kept, expiry)
        for side in OUTER_SIDES[self.how]:
            name = waiting_state(self.name, side)
            changed = waiting_changes(met[side], frontier.until, states[name])
            if changed is not None:
                changes[name] = changed
        return changes

    def _fire(
        self, side: JoinSide, met: MetRows | None, frontier: FrontierMove, states: States
    ) -> Rows | None:
        """The held rows that have waited for a match in vain."""
        lone = waited_in_vain(met, frontier, states[waiting_state(self.name, side)])
        if lone is None:
            return None
        entries = identity(lone.keys, lone.subkeys)
        held = states[side_state(self.name, side)].find_at(lone.hashes, entries, frontier.since)
        values = pa.Table.from_batches([held.values])
        every = PlacedRows(values, np.arange(len(lone), dtype=np.int64))
        return Rows(
            lone_values(self.columns, side, lone.keys, every),
            lone.hashes,
            lone.keys,
            times=lone.subkeys.column("time").to_numpy(),
        )

    def _wait(self, side: JoinSide) -> int:
        """How long after a row its last possible partner may be."""
        return -self.lower_us if side else self.upper_us
