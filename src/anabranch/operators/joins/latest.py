"""The latest join: each left row with the newest right row of its key so far, without waiting.

A left row sees the right rows of earlier steps, and those of its own step up to its time. So if all
rows come in the order of their times, the result is that of the as-of join. Rows without times see
all right rows of their step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import SIDE, JoinSide, LeftJoinKind
from anabranch.operators.arrivals import Arrivals, fired_mask, split_rows
from anabranch.operators.joins.columns import NO_ROW, JoinColumns, PlacedRows, side_mask
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.records.times import TOO_FAR
from anabranch.runs.changes import KeyChanges
from anabranch.runs.due import NEVER
from anabranch.runs.rows import LookupResult


class LatestJoin(msgspec.Struct, frozen=True):
    """The operator: of several right rows at one time, the last to come is the newest."""

    name: str
    columns: JoinColumns
    how: LeftJoinKind = "inner"

    @property
    def lag_us(self) -> int:
        """How far the times of its output may be behind its frontier."""
        return 0

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Its state: the newest right row of each key, with its time."""
        return (StateShape(self.name, f"{self.how} join_latest", self._values),)

    @property
    def _values(self) -> pa.Schema:
        """The state columns: the time of the newest right row, then its own."""
        taken, name = {name.lower() for name in self.columns.right.names}, "newest_time"
        while name in taken:
            name += "_"
        return pa.schema([pa.field(name, pa.int64()), *self.columns.right])

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """Nothing: output is made of rows that come."""
        return np.full(len(dues), NEVER, dtype=np.int64)

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Join the left rows, and keep the newest right row of each key."""
        if rows is None or not len(rows):
            return TimedResult()
        arrived, late = split_rows(rows, _times(rows) >= TOO_FAR, ties=SIDE)
        if arrived is None:
            return TimedResult(late=late)
        held = states[self.name].find(arrived.groups.hashes, arrived.groups.keys)
        rights = self._rights(arrived, held)
        seen, newest = _newest(arrived, rights)
        changes = self._changes(arrived, held, rights, newest)
        return TimedResult(
            self._output(arrived, rights, seen),
            late,
            {} if changes is None else {self.name: changes},
        )

    def _rights(self, arrived: Arrivals, held: LookupResult) -> _RightRows:
        """The right rows that are held, then those that have come."""
        old = np.flatnonzero(held.found)
        new = np.flatnonzero(side_mask(arrived.rows.values, JoinSide.RIGHT))
        times = _times(arrived.rows)[new]
        kept = self.columns.kept(arrived.rows.values, JoinSide.RIGHT, new)
        before = pa.Table.from_batches([held.values]).take(pa.array(old))
        after = pa.Table.from_arrays([pa.array(times), *kept.columns], names=self._values.names)
        return _RightRows(
            np.concatenate([old, arrived.groups.group_of_row[new]]),
            np.concatenate([before.column(0).to_numpy(), times]),
            np.concatenate([np.full(len(old), -1, dtype=np.int64), new]),
            pa.concat_tables([before, after.cast(before.schema)]).combine_chunks(),
        )

    def _output(self, arrived: Arrivals, rights: _RightRows, seen: Int64s) -> Rows | None:
        """The left rows, each with the newest right row that it sees."""
        lefts = np.flatnonzero(side_mask(arrived.rows.values, JoinSide.LEFT))
        if self.how == "inner":
            lefts = lefts[seen[lefts] != NO_ROW]
        if not len(lefts):
            return None
        assert arrived.rows.keys is not None
        values = self.columns.joined(
            arrived.rows.keys.take(pa.array(lefts)),
            PlacedRows(
                self.columns.kept(arrived.rows.values, JoinSide.LEFT, lefts),
                np.arange(len(lefts), dtype=np.int64),
            ),
            PlacedRows(rights.values.remove_column(0), seen[lefts]),
        )
        return arrived.rows.children(values, lefts, np.zeros(len(lefts), dtype=np.int64))

    def _changes(
        self, arrived: Arrivals, held: LookupResult, rights: _RightRows, newest: Int64s
    ) -> StateChanges | None:
        """Keep the newest right rows that have come."""
        chosen = newest[newest != NO_ROW]
        chosen = chosen[rights.rows[chosen] >= 0]
        if not len(chosen):
            return None
        groups, keys = arrived.groups, rights.keys[chosen]
        changed = KeyChanges(
            groups.hashes[keys],
            groups.keys.take(pa.array(keys)),
            rights.values.take(pa.array(chosen)),
            np.zeros(len(chosen), dtype=np.bool_),
        )
        return StateChanges(changed, held.present[keys])


@dataclass(frozen=True, slots=True, eq=False)
class _RightRows:
    """Right rows with the numbers of their keys; ``rows`` are their arrivals, -1 if held.

    The first column of ``values`` is the time.
    """

    keys: Int64s
    times: Int64s
    rows: Int64s
    values: pa.Table


def _newest(arrived: Arrivals, rights: _RightRows) -> tuple[Int64s, Int64s]:
    """The newest right row that each arrival sees, and the newest one of each key.

    A running maximum over all keys: what each right row counts is its rank by time, and later keys
    count for more than any row of an earlier one.
    """
    rank, by_rank = _ranks(rights)
    width = len(rank) + 1
    old = np.flatnonzero(rights.rows < 0)
    worth = np.zeros(len(arrived.rows), dtype=np.int64)
    new = np.flatnonzero(rights.rows >= 0)
    worth[rights.rows[new]] = rank[new] + 1
    keys = np.concatenate([rights.keys[old], arrived.groups.group_of_row])
    order = _sequence(arrived, len(old), keys)
    running = np.maximum.accumulate((keys * width + np.concatenate([rank[old] + 1, worth]))[order])
    found = np.append(NO_ROW, by_rank)[running % width]
    seen = np.empty(len(keys), dtype=np.int64)
    seen[order] = found
    last = np.append(np.flatnonzero(np.diff(keys[order])), len(keys) - 1)
    return seen[len(old) :], found[last]


def _ranks(rights: _RightRows) -> tuple[Int64s, Int64s]:
    """The rank of each right row by time, then as they came; and the rows by rank."""
    by_rank = np.lexsort((rights.rows, rights.times))
    rank = np.empty(len(by_rank), dtype=np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    return rank, by_rank


def _sequence(arrived: Arrivals, held: int, keys: Int64s) -> Int64s:
    """Held rows and arrivals in the order in which they count, key after key.

    First those held, then what notifications upstream made, then the rest by time; at one time,
    right rows come first.
    """
    rows = arrived.rows
    none = np.zeros(held, dtype=np.int64)
    lefts = side_mask(rows.values, JoinSide.LEFT)
    phases = np.concatenate([none, np.where(fired_mask(rows), 1, 2)])
    return np.lexsort(
        (
            np.concatenate([none, np.arange(len(rows))]),
            np.concatenate([none, lefts]),
            np.concatenate([none, _times(rows)]),
            phases,
            keys,
        )
    )


def _times(rows: Rows) -> Int64s:
    return np.zeros(len(rows), dtype=np.int64) if rows.times is None else rows.times
