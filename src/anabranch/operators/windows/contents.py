"""What a windowed operator keeps of the rows of a window, and what it makes of them in the end.

A window's contents are one row of state columns. They are reduced from rows, and contents of parts
are merged: of the panes of a sliding window, of sessions that become one, of what a step adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s
from anabranch.records.bins import Hashes

TIME_TYPE = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, eq=False)
class KeyedWindows:
    """Windows of many keys with their contents, sorted by hash and key."""

    hashes: Hashes
    keys: pa.RecordBatch
    starts: Int64s
    ends: Int64s
    state: State

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.hashes)

    def slice(self, first: int, last: int) -> KeyedWindows:
        """The windows from ``first`` up to ``last``, without a copy."""
        return KeyedWindows(
            self.hashes[first:last],
            self.keys.slice(first, last - first),
            self.starts[first:last],
            self.ends[first:last],
            [column.slice(first, last - first) for column in self.state],
        )

    def window_columns(self) -> list[pa.Array]:
        """Start and end as timestamps."""
        return [time_column(self.starts), time_column(self.ends)]


class Contents(Protocol):
    """The contents of many windows at once."""

    @property
    def state(self) -> pa.Schema:
        """The state columns."""
        ...

    def reduce(self, values: pa.Table, places: Int64s, starts: Int64s) -> State:
        """The contents of segments of rows: those at ``places``, cut at ``starts``."""
        ...

    def merge(self, before: State, after: State) -> State:
        """The contents of the rows of ``before``, then those of ``after``; NULL is no rows."""
        ...

    def output(self, windows: KeyedWindows) -> tuple[pa.Table, Int64s | None]:
        """The output rows, and the window that each is of; None if each window has one row."""
        ...


def fit_columns(columns: list[pa.Array], schema: pa.Schema) -> pa.Table:
    """A table of these columns, cast to the types of the schema."""
    fitting = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(fitting, schema=schema)


def time_column(times: Int64s) -> pa.Array:
    """Microseconds as timestamps."""
    return pa.array(times, type=pa.int64()).view(TIME_TYPE)


def time_numbers(column: pa.Array) -> Int64s:
    """Timestamps as microseconds."""
    numbers: Int64s = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def take_contents(state: State, places: Int64s) -> State:
    """The contents at these places."""
    index = pa.array(places)
    return [column.take(index) for column in state]


def put_contents(state: State, places: Int64s, new: State) -> State:
    """The contents with those at ``places`` replaced."""
    if not state or len(places) == len(state[0]):
        return new
    index = np.arange(len(state[0]))
    index[places] = len(index) + np.arange(len(places))
    whole = pa.array(index)
    pairs = zip(state, new, strict=True)
    return [pa.concat_arrays([before, after]).take(whole) for before, after in pairs]


def no_contents(schema: pa.Schema, count: int) -> State:
    """The contents of windows without rows."""
    return [pa.nulls(count, field.type) for field in schema]


def fold_contents(contents: Contents, state: State, starts: Int64s, count: int) -> State:
    """Merge the contents of each segment, in order: one row for each. No segment is empty.

    Neighbours are merged in pairs, so there are as many rounds as the longest segment has bits.
    Which rows are paired depends on their place in the segment alone (R9).
    """
    while len(starts) < count:
        lengths = np.diff(np.append(starts, count))
        segment = np.repeat(np.arange(len(starts)), lengths)
        place = np.arange(count) - starts[segment]
        leading = np.flatnonzero(place % 2 == 0)
        paired = place[leading] + 1 < lengths[segment[leading]]
        left = leading[paired]
        merged = contents.merge(take_contents(state, left), take_contents(state, left + 1))
        state = put_contents(take_contents(state, leading), np.flatnonzero(paired), merged)
        count = len(leading)
        lengths = (lengths + 1) // 2
        starts = np.cumsum(lengths) - lengths
    return state
