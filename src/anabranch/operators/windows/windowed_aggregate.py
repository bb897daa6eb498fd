"""``window(…).aggregate``: SQL aggregates per key and window, computed in Arrow.

The rows of a pane or session are reduced by each aggregate function as a step brings them. When a
window closes, the contents of its panes are merged, and the results are output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.operators.aggregate import AggregateColumn, take_argument
from anabranch.operators.aggregates.port import Function, Segments, Shape, State
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import Rows
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.contents import KeyedWindows, fit_columns
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.window_state import window_holds, window_shape
from anabranch.operators.windows.window_step import window_step
from anabranch.runs.due import NEVER


class WindowedAggregate(msgspec.Struct, frozen=True):
    """The operator: its windows, its columns, and the schemas of its key and its output.

    A window is output once, when it closes; or with ``emits_changes``, whenever a step changes it.
    Sessions cannot do that: those that merge would have to be taken back.
    """

    name: str
    windows: Panes | SessionGap
    columns: tuple[AggregateColumn, ...]
    keys: pa.Schema
    output: pa.Schema
    emits_changes: bool = False

    @property
    def state(self) -> pa.Schema:
        """The state columns."""
        return self._contents.state

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """A row for each pane or session of a key."""
        columns = ", ".join(f"{column.name}={column.label}" for column in self.columns)
        return (window_shape(self.name, f"aggregate({columns})", self.windows, self.state),)

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Process a step."""
        return window_step(
            self.name,
            self.windows,
            self._contents,
            self.keys.names,
            rows,
            frontier,
            states[self.name],
            emits_changes=self.emits_changes,
        )

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The last microsecond of the next window that closes; none if closing outputs nothing."""
        if self.emits_changes:
            return np.full(len(dues), NEVER, dtype=np.int64)
        return window_holds(self.windows, dues, frontier)

    @property
    def _contents(self) -> AggregateContents:
        return AggregateContents(self.name, self.columns, self.output)


@dataclass(frozen=True)
class AggregateContents:
    """Aggregates of the rows; the output is the key, the window and the values."""

    operator: str
    columns: tuple[AggregateColumn, ...]
    schema: pa.Schema

    @cached_property
    def state(self) -> pa.Schema:
        """The state columns of all functions."""
        return pa.schema([field for column in self.columns for field in column.state_fields()])

    def reduce(self, values: pa.Table, places: Int64s, starts: Int64s) -> State:
        """Reduce each segment by every function."""
        shape = Shape(starts, len(places))
        found: list[pa.Array] = []
        for column, function in zip(self.columns, self._functions, strict=True):
            arguments = tuple(take_argument(values, a, places) for a in column.arguments)
            found += function.reduce(Segments(shape, arguments, self._where(column)))
        return found

    def merge(self, before: State, after: State) -> State:
        """Merge by every function."""
        found: list[pa.Array] = []
        for column, function, part in self._parts():
            found += function.merge(before[part], after[part], self._where(column))
        return found

    def output(self, windows: KeyedWindows) -> tuple[pa.Table, Int64s | None]:
        """One row for each window."""
        results = [f.result(windows.state[part], self._where(c)) for c, f, part in self._parts()]
        columns = [*windows.keys.columns, *windows.window_columns(), *results]
        return fit_columns(columns, self.schema), None

    @cached_property
    def _functions(self) -> tuple[Function, ...]:
        return tuple(column.make_function() for column in self.columns)

    def _parts(self) -> list[tuple[AggregateColumn, Function, slice]]:
        """Each column with its function and the place of its state."""
        parts, first = [], 0
        for column, function in zip(self.columns, self._functions, strict=True):
            last = first + len(function.fields())
            parts.append((column, function, slice(first, last)))
            first = last
        return parts

    def _where(self, column: AggregateColumn) -> str:
        return f"operator {self.operator}, column {column.name}"
