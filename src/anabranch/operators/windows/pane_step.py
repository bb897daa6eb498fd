"""One step of an operator over tumbling or sliding windows.

State has a row for each pane of each key. A pane falls due at the end of the last window that it
counts for. Windows close when the frontier passes their end: their panes, with the rows that
notifications upstream made, are then merged. After that come the step's own rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anabranch.operators.order.row_order import Int64s, begins, digits_of
from anabranch.operators.rows import Rows, concat_some, split_groups
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.arrivals import (
    fired_rows,
    ordered_rows,
    part_rows,
    times_of,
    too_far,
)
from anabranch.operators.windows.contents import (
    Contents,
    KeyedWindows,
    fold_contents,
    take_contents,
)
from anabranch.operators.windows.pane_table import PaneTable, Touched, all_panes, touched_panes
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.shares import KeptRows, due_shares, replace_rows
from anabranch.operators.windows.slots import key_numbers, slots_of
from anabranch.operators.windows.window_rows import changed_rows, closed_rows
from anabranch.runs.sort_pairs import sort_pairs

MERGED_PANES = 500_000
"""About how many panes of closing windows are merged at a time."""


@dataclass(frozen=True, slots=True)
class PaneStep:
    """What a step needs to know. ``keys`` are the names of the key columns.

    A window is output once, when it closes; or, with ``emits_changes``, whenever a step changes it
    and not when it closes.
    """

    operator: str
    panes: Panes
    contents: Contents
    keys: list[str]
    emits_changes: bool
    state: TimedEntries
    frontier: FrontierMove

    def run(self, given: Rows | None) -> TimedResult:
        """Process the step: fired rows, closing windows, then the other rows."""
        rows, late = self._judge(ordered_rows(given))
        if rows is None:
            return TimedResult(concat_some(list(self._close(None))), late)
        table, fired = self._open(rows), fired_rows(rows)
        made: KeptRows | None = None
        output: list[Rows] = []
        if fired.any():
            table, touched = table.absorb(self.contents, rows, fired)
            output += self._changed(table, touched, rows, self.frontier.since, fired=True)
            made = table.rows(self.panes, self._closing(table, touched))
        output += self._close(made)
        if not fired.all():
            table, touched = table.absorb(self.contents, rows, ~fired)
            output += self._changed(table, touched, rows, self.frontier.until, fired=False)
        changes = table.changes(self.contents, self.panes, self.frontier.until)
        return TimedResult(
            concat_some(output), late, {} if changes is None else {self.operator: changes}
        )

    def _judge(self, rows: Rows | None) -> tuple[Rows | None, Rows | None]:
        """The rows that some open window takes, and those that come too late.

        Fired rows belong to the time before the frontier moved, and so are never late.
        """
        if rows is None:
            return None, None
        last_ends = self.panes.last_end(self.panes.pane_of(times_of(rows)))
        frontiers = np.where(fired_rows(rows), self.frontier.since, self.frontier.until)
        return part_rows(rows, (last_ends <= frontiers) | too_far(rows))

    def _open(self, rows: Rows) -> PaneTable:
        """The panes that the rows touch, as they were before the step.

        A changed sliding window needs its other panes too.
        """
        slots = slots_of(rows, self.panes.pane_of(times_of(rows)))
        if self.emits_changes and self.panes.every < self.panes.length:
            return all_panes(slots, self.state, self.contents.state, self.frontier.since)
        return touched_panes(slots, self.state, self.frontier.since)

    def _closing(self, table: PaneTable, touched: Touched) -> Int64s:
        """Those of the touched panes that count for a window that closes in this step."""
        ends = self.panes.first_end(table.starts[touched.places])
        return touched.places[ends <= self.frontier.until]

    def _close(self, made: KeptRows | None) -> Iterator[Rows]:
        """The rows of windows that close; ``made`` are panes that fired rows have changed."""
        panes, since, until = self.panes, self.frontier.since, self.frontier.until
        last = panes.last_end_until(until)
        if self.emits_changes or last <= since:
            return
        # The windows that close begin before this; their panes may count for later ones too.
        latest = int(panes.last_end(np.array([last - panes.pane]))[0])
        for share in due_shares(self.state, self.keys, since, latest, made, replace_rows):
            for windows in self._windows(share):
                yield closed_rows(self.operator, self.contents, windows)

    def _windows(self, share: KeptRows) -> Iterator[KeyedWindows]:
        """The closing windows that panes make up, some at a time."""
        if self.panes.every == self.panes.length:
            yield KeyedWindows(share.hashes, share.keys, share.starts, share.dues, share.state)
            return
        keys = key_numbers(share.hashes, share.keys)
        counts = self.panes.closing_counts(share.starts, self.frontier.since, self.frontier.until)
        begun = np.concatenate(([0], np.cumsum(counts)))
        # Whole hashes: closed rows of one hash are numbered together.
        edges = np.append(np.flatnonzero(begins(share.hashes.view(np.int64))), len(keys))
        for part in split_groups(begun[edges[:-1]], int(begun[-1]), MERGED_PANES):
            first, last = int(edges[part.first_group]), int(edges[part.last_group])
            if part.first_row < part.last_row:
                yield self._merge(share.slice(first, last), keys[first:last])

    def _merge(self, share: KeptRows, keys: Int64s) -> KeyedWindows:
        """The windows that the panes of some keys make up."""
        place, ends = self.panes.closing(share.starts, self.frontier.since, self.frontier.until)
        order = sort_pairs(keys[place], ends)
        place, ends = place[order], ends[order]
        first = np.flatnonzero(begins(keys[place], ends))
        state = fold_contents(self.contents, take_contents(share.state, place), first, len(place))
        hashes, keyed = share.take_keys(place[first])
        ends = ends[first]
        return KeyedWindows(hashes, keyed, ends - self.panes.length, ends, state)

    def _changed(
        self, table: PaneTable, touched: Touched, rows: Rows, after: int, *, fired: bool
    ) -> Iterator[Rows]:
        """The new values of windows that rows have changed, if they are wanted."""
        if not self.emits_changes:
            return
        windows, first = table.windows_with(self.contents, self.panes, touched, after)
        order = None if rows.order is None else rows.order.child(first, digits_of(first))
        yield changed_rows(self.contents, windows, order, fired=fired)
