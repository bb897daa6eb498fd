"""``dedup``: the first row of each key passes, others near it in event time do not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.operators.arrivals import Arrivals, due_after, split_late
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timeline import Timeline
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.due import NEVER

PASSED = pa.schema([("time", pa.int64())])
"""The sub-key of a row that has passed: its time."""


class Dedup(msgspec.Struct, frozen=True):
    """The operator: a row is dropped if one of its key, at most ``within_us`` away, has passed.

    Rows are taken in the order of the stream, so a row may be dropped because of a later one that
    came before it. What has passed is forgotten when no row near it can come.
    """

    name: str
    within_us: int

    @property
    def lag_us(self) -> int:
        """How far the times of its output may be behind its frontier."""
        return 0

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Its state: the times of the rows that have passed."""
        kind = f"dedup within {self.within_us}"
        return (StateShape(self.name, kind, pa.schema([]), PASSED, expires=True, clock="event"),)

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """Nothing: output is made of rows that come."""
        return np.full(len(dues), NEVER, dtype=np.int64)

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Let rows pass that are the first of their kind."""
        arrived, late = split_late(rows, frontier.until)
        if arrived is None:
            return TimedResult(late=late)
        new = np.flatnonzero(~self._seen(arrived, frontier.since, states[self.name]))
        keys, times = arrived.groups.group_of_row[new], arrived.times[new]
        passed = new[first_rows(keys, times, self.within_us)]
        if not len(passed):
            return TimedResult(late=late)
        values = arrived.rows.values.take(pa.array(passed))
        output = arrived.rows.children(values, passed, np.zeros(len(passed), dtype=np.int64))
        changes = self._changes(arrived, passed, frontier.until)
        return TimedResult(output, late, {} if changes is None else {self.name: changes})

    def _seen(self, arrived: Arrivals, frontier: int, state: TimedEntries) -> Mask:
        """Which rows are near one that passed in an earlier step."""
        groups = arrived.groups
        entries = state.entries_at(groups.hashes, groups.keys, frontier)
        line = Timeline(entries.places, entries.subkeys.column(0).to_numpy())
        keys, times = groups.group_of_row, arrived.times
        first = line.ahead(keys, times - self.within_us)
        return line.up_to(keys, times + self.within_us) > first

    def _changes(self, arrived: Arrivals, passed: Int64s, frontier: int) -> StateChanges | None:
        """Remember the rows that have passed while rows near them may come."""
        due = due_after(arrived.times[passed], self.within_us)
        kept, due = passed[due > frontier], due[due > frontier]
        if not len(kept):
            return None
        groups, keys = arrived.groups, arrived.groups.group_of_row[kept]
        new = np.zeros(len(kept), dtype=np.bool_)
        changed = KeyChanges(
            groups.hashes[keys],
            groups.keys.take(pa.array(keys)),
            pa.table({}),
            new,
            pa.Table.from_arrays([pa.array(arrived.times[kept])], schema=PASSED),
            pa.array(due),
        )
        return StateChanges(changed, new)


def first_rows(keys: Int64s, times: Int64s, within: int) -> Int64s:
    """The places of the rows that pass, if each drops later ones of its key that are near it.

    In each round the first row left of each cluster passes: rows of a key without a gap between
    them. There are as many rounds as rows of one cluster pass; mostly, that is one.

    >>> first_rows(np.array([1, 1, 1, 2]), np.array([10, 14, 17, 14]), 5).tolist()
    [0, 2, 3]
    """
    clusters = _clusters(keys, times, within)
    first = np.empty(len(keys), dtype=np.int64)
    left = np.arange(len(keys), dtype=np.int64)
    passed = [left[:0]]
    while len(left):
        # The last assignment counts: that of the first row.
        first[clusters[left[::-1]]] = left[::-1]
        leaders = first[clusters[left]]
        passed.append(left[leaders == left])
        left = left[np.abs(times[left] - times[leaders]) > within]
    return np.sort(np.concatenate(passed))


def _clusters(keys: Int64s, times: Int64s, within: int) -> Int64s:
    """Number the rows so that rows of one key have different numbers if no rows connect them."""
    order = np.lexsort((times, keys))
    apart = np.zeros(len(keys), dtype=np.bool_)
    key, time = keys[order], times[order]
    apart[1:] = (key[1:] != key[:-1]) | (time[1:] - time[:-1] > within)
    clusters = np.empty(len(keys), dtype=np.int64)
    clusters[order] = np.cumsum(apart)
    return clusters
