"""``window(…).apply``: the user's function gets all rows of closed windows as Arrow tables.

There are two states. One says how many rows each pane or session of a key has, and falls due. The
other has the rows themselves, and is read when windows close.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.types.window_types import ROWS
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.arrivals import ordered_rows
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.row_contents import COUNTS, NAMES, PLACE, RowContents
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.window_function import WindowFunction
from anabranch.operators.windows.window_state import window_holds, window_shape, windows_text
from anabranch.operators.windows.window_step import window_step


class WindowApply(msgspec.Struct, frozen=True):
    """The operator: its windows, its function, and the schema of its key."""

    name: str
    windows: Panes | SessionGap
    function: WindowFunction
    keys: pa.Schema

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """How many rows panes or sessions have, and the rows.

        Rows expire with their pane. Those of sessions are removed when these close: until then
        nobody knows the end.
        """
        kind = f"apply rows over {windows_text(self.windows)}"
        expires = isinstance(self.windows, Panes)
        return (
            window_shape(self.name, "apply", self.windows, COUNTS),
            StateShape(self.name + ROWS, kind, self.function.rows, NAMES, expires, clock="event"),
        )

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Process a step."""
        given = ordered_rows(rows)
        contents = RowContents(
            self.windows, self.function, given, frontier, states[self.name + ROWS]
        )
        # What happens to a row depends on its key and time alone: its place stands for the rest.
        numbered = None
        if given is not None:
            numbered = replace(given, values=pa.table({PLACE: np.arange(len(given))}))
        made = window_step(
            self.name,
            self.windows,
            contents,
            self.keys.names,
            numbered,
            frontier,
            states[self.name],
        )
        late, changed = None, contents.changes()
        if given is not None and made.late is not None:
            late = given.take(made.late.values.column(PLACE).to_numpy())
        changes = made.changes if changed is None else {**made.changes, self.name + ROWS: changed}
        return TimedResult(made.output, late, changes)

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The last microsecond of the next window that closes."""
        return window_holds(self.windows, dues, frontier)
