"""Which rows are in which windows, for windows that keep all their rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.order.row_order import Int64s
from anabranch.operators.windows.contents import KeyedWindows, time_numbers
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.slots import ABSENT, pair_places
from anabranch.runs.sort_pairs import sort_pairs


@dataclass(frozen=True, slots=True, eq=False)
class MemberRows:
    """Rows of some keys, of whichever windows: first those of the state, then the step's.

    ``keys`` are the numbers of their keys. ``names`` are the columns time, step and place that name
    a row of a key. ``places`` are the places of the step's rows.
    """

    keys: Int64s
    names: pa.RecordBatch
    values: pa.RecordBatch
    places: Int64s

    @property
    def held(self) -> int:
        """How many of them are in the state."""
        return len(self.keys) - len(self.places)

    @property
    def times(self) -> Int64s:
        """The event times."""
        return time_numbers(self.names.column(0))

    def arrival(self) -> Int64s:
        """Where each row comes in the order in which they arrived."""
        _, step, place = self.names.columns
        rank = np.empty(len(self.keys), dtype=np.int64)
        rank[sort_pairs(step.to_numpy(), place.to_numpy())] = np.arange(len(rank))
        return rank

    def in_panes(
        self, panes: Panes, windows: KeyedWindows, key_of: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Each row with each of the windows that it is in; ``key_of`` are the windows' keys."""
        before, last = int(windows.ends.min()) - 1, int(windows.ends.max())
        row, ends = panes.closing(panes.pane_of(self.times), before, last)
        window = pair_places(key_of, windows.ends, self.keys[row], ends)
        inside = window != ABSENT
        return row[inside], window[inside]

    def in_sessions(self, windows: KeyedWindows, key_of: Int64s) -> tuple[Int64s, Int64s]:
        """Each row that is in one of the sessions, with that session."""
        count = len(windows)
        keys = np.concatenate([key_of, self.keys])
        order = sort_pairs(keys, np.concatenate([windows.starts, self.times]))
        # Sessions are sorted, and come before rows at their start: the last one so far counts.
        latest = np.maximum.accumulate(np.where(order < count, order, ABSENT))
        window = np.empty(len(order), dtype=np.int64)
        window[order] = latest
        window = window[count:]
        inside = window != ABSENT
        inside &= (key_of[window] == self.keys) & (self.times < windows.ends[window])
        return np.flatnonzero(inside), window[inside]
