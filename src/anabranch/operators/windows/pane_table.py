"""The panes of the keys that a step touches, with their contents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s, begins
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.timed import TimedEntries
from anabranch.operators.windows.contents import (
    Contents,
    KeyedWindows,
    fold_contents,
    no_contents,
    put_contents,
    take_contents,
    time_column,
    time_numbers,
)
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.shares import KeptRows
from anabranch.operators.windows.slots import ABSENT, RowSlots, pair_places
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges, identity
from anabranch.runs.sort_pairs import sort_pairs

START = "start"


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """The panes that rows went into: their places in the table, and the first row of each."""

    places: Int64s
    first_rows: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class PaneTable:
    """Panes sorted by key and start.

    ``place_of_slot`` is where the slots of the step's rows are among them. ``present`` says which
    panes have a row in the state.
    """

    slots: RowSlots
    key_of_pane: Int64s
    starts: Int64s
    state: State
    present: Mask
    place_of_slot: Int64s

    def absorb(self, contents: Contents, rows: Rows, chosen: Mask) -> tuple[PaneTable, Touched]:
        """The panes with the chosen rows added, and which panes these went into."""
        slots, order, starts = self.slots.rows_of(chosen)
        added = contents.reduce(rows.values, order, starts)
        places = self.place_of_slot[slots]
        merged = contents.merge(take_contents(self.state, places), added)
        after = replace(self, state=put_contents(self.state, places, merged))
        return after, Touched(places, order[starts])

    def windows_with(
        self, contents: Contents, panes: Panes, touched: Touched, after: int
    ) -> tuple[KeyedWindows, Int64s]:
        """All windows of touched panes that end after a time; and the first row in each."""
        keys, starts = self.key_of_pane[touched.places], self.starts[touched.places]
        latest = int(panes.last_end(starts).max()) if len(starts) else after
        place, ends = panes.closing(starts, after, latest)
        order = sort_pairs(keys[place], ends)
        keys, ends, rows = keys[place][order], ends[order], touched.first_rows[place][order]
        first = np.flatnonzero(begins(keys, ends))
        rows = np.minimum.reduceat(rows, first) if len(first) else rows
        keys, ends = keys[first], ends[first]
        state = self._merged(contents, panes, keys, ends)
        groups = self.slots.groups
        windows = KeyedWindows(
            groups.hashes[keys], groups.keys.take(pa.array(keys)), ends - panes.length, ends, state
        )
        return windows, rows

    def _merged(self, contents: Contents, panes: Panes, keys: Int64s, ends: Int64s) -> State:
        """The contents of windows, which are sorted by key and end."""
        if not len(ends):
            return no_contents(contents.state, 0)
        place, each_end = panes.closing(self.starts, int(ends.min()) - 1, int(ends.max()))
        found = pair_places(keys, ends, self.key_of_pane[place], each_end)
        place, found = place[found != ABSENT], found[found != ABSENT]
        order = sort_pairs(found, place)
        starts = np.flatnonzero(begins(found[order]))
        return fold_contents(contents, take_contents(self.state, place[order]), starts, len(order))

    def rows(self, panes: Panes, places: Int64s) -> KeptRows:
        """The panes at these places, as rows of state."""
        keys, starts = self.key_of_pane[places], self.starts[places]
        groups = self.slots.groups
        return KeptRows(
            groups.hashes[keys],
            groups.keys.take(pa.array(keys)),
            starts,
            panes.last_end(starts),
            take_contents(self.state, places),
        )

    def changes(self, contents: Contents, panes: Panes, until: int) -> StateChanges | None:
        """The step's panes that are still needed after it, as changes of the state."""
        places = self.place_of_slot
        needed = panes.last_end(self.starts[places]) > until
        places = places if needed.all() else places[needed]
        if not len(places):
            return None
        rows = self.rows(panes, places)
        changed = KeyChanges(
            rows.hashes,
            rows.keys,
            pa.RecordBatch.from_arrays(rows.state, schema=contents.state),
            np.zeros(len(rows), dtype=np.bool_),
            pa.RecordBatch.from_arrays([time_column(rows.starts)], names=[START]),
            pa.array(rows.dues),
        )
        return StateChanges(changed, self.present[places])


def touched_panes(slots: RowSlots, state: TimedEntries, frontier: int) -> PaneTable:
    """The panes that rows are in, as they were at a frontier."""
    starts = pa.RecordBatch.from_arrays([time_column(slots.panes)], names=[START])
    held = state.find_at(slots.hashes, identity(slots.keys, starts), frontier)
    every = np.arange(len(slots))
    return PaneTable(
        slots, slots.key_of_slot, slots.panes, held.values.columns, held.present, every
    )


def all_panes(slots: RowSlots, state: TimedEntries, schema: pa.Schema, frontier: int) -> PaneTable:
    """All panes of the keys of rows, as they were at a frontier, and those that rows are in."""
    held = state.entries_at(slots.groups.hashes, slots.groups.keys, frontier)
    count = held.rows.num_rows
    keys = np.concatenate([held.places, slots.key_of_slot])
    starts = np.concatenate([time_numbers(held.subkeys.column(0)), slots.panes])
    order = sort_pairs(keys, starts)
    new = begins(keys[order], starts[order])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(new) - 1
    # The order is stable: a pane that is held comes before the slot of its new rows.
    chosen = order[new]
    nothing = no_contents(schema, len(slots))
    both = [pa.concat_arrays(pair) for pair in zip(held.values.columns, nothing, strict=True)]
    return PaneTable(
        slots,
        keys[chosen],
        starts[chosen],
        take_contents(both, chosen),
        chosen < count,
        place[count:],
    )
