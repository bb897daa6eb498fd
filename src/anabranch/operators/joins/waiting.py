"""Rows of an outer side that wait for their first match.

They are in a state of their own, by their sub-key alone. So what may still become output is found
by its due time, and a row's first match only removes a small entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.due_entries import DueEntries, due_entries
from anabranch.operators.joins.side_rows import SideRows
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import StateChanges, concat_changes
from anabranch.operators.timed import FrontierMove, TimedEntries
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges, identity
from anabranch.runs.rows import Groups


@dataclass(frozen=True, slots=True, eq=False)
class MetRows:
    """The rows of one side in a step: their keys, when they fall due, and which have a match."""

    groups: Groups
    rows: SideRows
    due: Int64s
    matched: Mask

    def lone(self, frontier: int) -> Int64s:
        """The places of the rows that have come and can have no match any more."""
        return np.flatnonzero(~self.rows.held & ~self.matched & (self.due <= frontier))

    def kept(self, frontier: int) -> Int64s:
        """The places of the rows that have come and may have matches later."""
        return np.flatnonzero(~self.rows.held & (self.due > frontier))


def waiting_changes(met: MetRows, frontier: int, waiting: TimedEntries) -> StateChanges | None:
    """New rows without a match begin to wait; held ones with their first match no longer do."""
    parts = []
    later = met.due > frontier
    new = np.flatnonzero(later & ~met.rows.held & ~met.matched)
    if len(new):
        parts.append(StateChanges(_entries(met, new), np.zeros(len(new), dtype=np.bool_)))
    old = np.flatnonzero(later & met.rows.held & met.matched)
    if len(old):
        changed = _entries(met, old)
        assert changed.subkeys is not None
        found = waiting.find(changed.hashes, identity(changed.keys, changed.subkeys)).found
        if found.any():
            first = _entries(met, old[found], gone=True)
            parts.append(StateChanges(first, first.tombstone))
    return concat_changes(parts) if parts else None


def waited_in_vain(
    met: MetRows | None, frontier: FrontierMove, waiting: TimedEntries
) -> DueEntries | None:
    """The entries of the rows whose last possible partner has not come."""
    due = due_entries(waiting.due(frontier.since, frontier.until))
    if due is None or met is None:
        return due
    # A row that a notification upstream made may be a first match at the last moment.
    past = np.flatnonzero((met.due <= frontier.until) & met.rows.held & met.matched)
    if not len(past):
        return due
    changed = _entries(met, past)
    assert changed.subkeys is not None
    return due.filter(~due.among(changed.hashes, changed.keys, changed.subkeys))


def _entries(met: MetRows, chosen: Int64s, *, gone: bool = False) -> KeyChanges:
    """The entries by which the chosen rows wait."""
    keys = met.rows.keys[chosen]
    return KeyChanges(
        met.groups.hashes[keys],
        met.groups.keys.take(pa.array(keys)),
        pa.table({}),
        np.full(len(chosen), gone, dtype=np.bool_),
        met.rows.subkeys(chosen),
        pa.array(met.due[chosen]),
    )
