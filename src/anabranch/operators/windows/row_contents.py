"""Windows that keep all their rows, in a state of their own, for a function of the user's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s, begins, digits_of
from anabranch.operators.rows import Rows, StateChanges, concat_changes, split_groups
from anabranch.operators.timed import FrontierMove, TimedEntries
from anabranch.operators.windows.arrivals import times_of
from anabranch.operators.windows.contents import TIME_TYPE, KeyedWindows, time_column
from anabranch.operators.windows.members import MemberRows
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.slots import ABSENT, key_numbers, key_places
from anabranch.operators.windows.window_function import WindowFunction
from anabranch.records.bins import Hashes
from anabranch.records.layout import nullable
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_batch
from anabranch.runs.rows import group_keys
from anabranch.runs.sort_pairs import sort_pairs

COUNTS = pa.schema([("rows", pa.int64())])
NAMES = pa.schema([("time", TIME_TYPE), ("step", pa.int64()), ("place", pa.int64())])
"""What names a row of a key: its time, the step that brought it, and its place there."""

PLACE = "place"
"""The column that stands for a row in a step."""

TABLE_ROWS = 100_000
"""About how many rows a table for the function has; all windows of a key are in one."""


class RowContents:
    """The rows of windows in a step. Their contents are how many rows each pane or session has.

    ``rows`` are the step's, in order; the windows know them by their places. ``held`` is the state
    with the rows of earlier steps.
    """

    def __init__(
        self,
        windows: Panes | SessionGap,
        function: WindowFunction,
        rows: Rows | None,
        frontier: FrontierMove,
        held: TimedEntries,
    ) -> None:
        self._windows = windows
        self._function = function
        self._rows = rows
        self._frontier = frontier
        self._held = held
        self._accepted = np.empty(0, dtype=np.int64)
        self._removed: list[StateChanges] = []
        self._used = np.zeros(0 if rows is None else len(rows), dtype=np.bool_)
        self._numbers = _numbers(rows)
        #: The columns of rows, with all that is nested nullable, as state has them.
        self._kept = pa.schema([pa.field(f.name, nullable(f.type)) for f in function.rows])

    @property
    def state(self) -> pa.Schema:
        """The number of rows."""
        return COUNTS

    def reduce(self, values: pa.Table, places: Int64s, starts: Int64s) -> State:
        """Count the rows of each segment; they are accepted."""
        accepted = values.column(PLACE).to_numpy()[places]
        self._accepted = np.concatenate([self._accepted, accepted])
        return [pa.array(np.diff(np.append(starts, len(places))), type=pa.int64())]

    def merge(self, before: State, after: State) -> State:
        """Add the numbers."""
        return [pc.add(before[0].fill_null(0), after[0].fill_null(0))]

    def output(self, windows: KeyedWindows) -> tuple[pa.Table, Int64s | None]:
        """What the function makes of the rows of windows, some keys at a time."""
        tables, numbers = [], []
        for first, part in self._parts(windows):
            values, window_of = self._rows_of(part)
            made, made_of = self._function.call(part, values, window_of)
            tables.append(made)
            numbers.append(first + made_of)
        return pa.concat_tables(tables), np.concatenate(numbers)

    def changes(self) -> StateChanges | None:
        """The rows that later windows need, and those that the closed ones leave behind."""
        kept = self._accepted[~self._used[self._accepted]]
        expiry = None
        if isinstance(self._windows, Panes) and self._rows is not None:
            panes = self._windows.pane_of(times_of(self._rows)[kept])
            ends = self._windows.last_end(panes)
            kept, expiry = kept[ends > self._frontier.until], ends[ends > self._frontier.until]
        parts = list(self._removed)
        if len(kept):
            parts.append(self._added(kept, expiry))
        return concat_changes(parts) if parts else None

    def _parts(self, windows: KeyedWindows) -> Iterator[tuple[int, KeyedWindows]]:
        """The windows in parts of about ``TABLE_ROWS`` rows, with the number of the first."""
        begun = np.concatenate(([0], np.cumsum(windows.state[0].to_numpy())))
        # Whole hashes, and so whole keys: the rows of a key are read once.
        edges = np.append(np.flatnonzero(begins(windows.hashes.view(np.int64))), len(windows))
        for part in split_groups(begun[edges[:-1]], int(begun[-1]), TABLE_ROWS):
            first, last = int(edges[part.first_group]), int(edges[part.last_group])
            yield first, windows.slice(first, last)

    def _rows_of(self, windows: KeyedWindows) -> tuple[pa.Table, Int64s]:
        """The rows of windows, window by window and as they arrived, and the window of each."""
        key_of = key_numbers(windows.hashes, windows.keys)
        leaders = np.flatnonzero(begins(key_of))
        hashes, keys = windows.hashes[leaders], windows.keys.take(pa.array(leaders))
        found = self._members(hashes, keys)
        if isinstance(self._windows, Panes):
            row, window = found.in_panes(self._windows, windows, key_of)
        else:
            row, window = found.in_sessions(windows, key_of)
            self._remove(hashes, keys, found, row)
        order = sort_pairs(window, found.arrival()[row])
        values = pa.Table.from_batches([found.values.take(pa.array(row[order]))])
        return values, window[order]

    def _members(self, hashes: Hashes, keys: pa.RecordBatch) -> MemberRows:
        """The rows of these keys, of whichever windows."""
        held = self._held.entries_at(hashes, keys, self._frontier.since)
        names, values = held.subkeys, held.values
        number, places = held.places, self._accepted
        if self._rows is not None and len(places):
            assert self._rows.hashes is not None
            assert self._rows.keys is not None
            key = one_batch(self._rows.keys.take(pa.array(places)))
            of_row = key_places(hashes, keys, self._rows.hashes[places], key)
            places, of_row = places[of_row != ABSENT], of_row[of_row != ABSENT]
            number = np.concatenate([number, of_row])
            names = pa.concat_batches([names, self._names(places)])
            values = pa.concat_batches([values, self._values(places)])
        return MemberRows(number, names, values, places)

    def _names(self, places: Int64s) -> pa.RecordBatch:
        """What names the rows at these places."""
        assert self._rows is not None
        step = np.full(len(places), self._held.step, dtype=np.int64)
        times = time_column(times_of(self._rows)[places])
        columns = [times, pa.array(step), pa.array(self._numbers[places])]
        return pa.RecordBatch.from_arrays(columns, schema=NAMES)

    def _values(self, places: Int64s) -> pa.RecordBatch:
        """The columns of the rows at these places, as the state keeps them."""
        assert self._rows is not None
        return one_batch(self._rows.values.take(pa.array(places)).cast(self._kept))

    def _added(self, places: Int64s, expiry: Int64s | None) -> StateChanges:
        """The rows at these places as changes of the state."""
        rows = self._rows
        assert rows is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        changed = KeyChanges(
            rows.hashes[places],
            one_batch(rows.keys.take(pa.array(places))),
            self._values(places),
            np.zeros(len(places), dtype=np.bool_),
            self._names(places),
            None if expiry is None else pa.array(expiry),
        )
        return StateChanges(changed, np.zeros(len(places), dtype=np.bool_))

    def _remove(
        self, hashes: Hashes, keys: pa.RecordBatch, found: MemberRows, used: Int64s
    ) -> None:
        """Note that the sessions of these rows have closed; nothing else needs the rows."""
        self._used[found.places[used[used >= found.held] - found.held]] = True
        held = used[used < found.held]
        if not len(held):
            return
        key, index = found.keys[held], pa.array(held)
        every = np.ones(len(held), dtype=np.bool_)
        changed = KeyChanges(
            hashes[key],
            keys.take(pa.array(key)),
            found.values.take(index),
            every,
            found.names.take(index),
        )
        self._removed.append(StateChanges(changed, every))


def _numbers(rows: Rows | None) -> Int64s:
    """The number of each row among the rows of its key."""
    if rows is None:
        return np.empty(0, dtype=np.int64)
    assert rows.hashes is not None
    assert rows.keys is not None
    return digits_of(group_keys(rows.hashes, rows.keys).group_of_row)
