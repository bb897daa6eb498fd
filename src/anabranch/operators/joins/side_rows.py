"""The rows of one side of a join: those that it holds, that have come, or that fall due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import JoinSide, side_state
from anabranch.operators.arrivals import Arrivals
from anabranch.operators.due_entries import DueEntries
from anabranch.operators.joins.columns import JoinColumns, side_mask
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import StateChanges
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import TimedEntries
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.rows import Groups, group_keys

ROW_PLACE = pa.schema([(name, pa.int64()) for name in ("time", "step", "place")])
"""The sub-key of a row that a join holds: its time, and its number among its key's of a step."""

_HELD = -1


@dataclass(frozen=True, slots=True, eq=False)
class SideRows:
    """Rows of one side in a step.

    ``keys`` are the numbers of their keys among those of the step. ``times``, ``steps`` and
    ``places`` make up their sub-keys. ``rows`` are their places among the arrivals; it is negative
    for rows held since earlier steps.
    """

    keys: Int64s
    times: Int64s
    steps: Int64s
    places: Int64s
    rows: Int64s
    values: pa.Table

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def held(self) -> Mask:
        """Which rows have been held before this step."""
        return self.rows < 0

    def subkeys(self, chosen: Int64s) -> pa.Table:
        """The sub-keys of the rows at these places."""
        columns = [pa.array(part[chosen]) for part in (self.times, self.steps, self.places)]
        return pa.Table.from_arrays(columns, schema=ROW_PLACE)

    def taken(self, chosen: Int64s) -> pa.Table:
        """The values of the rows at these places."""
        # A table without columns has no rows to take.
        return self.values.take(pa.array(chosen)) if self.values.num_columns else self.values

    def changes(
        self, groups: Groups, chosen: Int64s, expiry: pa.Array, gone: Mask | None = None
    ) -> StateChanges:
        """The changes that hold the chosen rows until their expiry, or forget those ``gone``."""
        keys = self.keys[chosen]
        changed = KeyChanges(
            groups.hashes[keys],
            groups.keys.take(pa.array(keys)),
            self.taken(chosen),
            np.zeros(len(chosen), dtype=np.bool_) if gone is None else gone,
            self.subkeys(chosen),
            expiry,
        )
        return StateChanges(changed, self.held[chosen])


def side_shape(
    operator: str, side: JoinSide, columns: JoinColumns, kind: str, *, dues: bool = False
) -> StateShape:
    """The state that has the rows of a side, until no row of the other side can need them."""
    return StateShape(
        side_state(operator, side),
        kind,
        columns.of(side),
        ROW_PLACE,
        expires=True,
        clock="event",
        dues=dues,
    )


def arrived_rows(
    columns: JoinColumns, side: JoinSide, arrived: Arrivals, keys: Int64s, step: int
) -> SideRows:
    """The rows of a side that have come; ``keys`` are the numbers of the arrivals' keys."""
    rows = np.flatnonzero(side_mask(arrived.rows.values, side))
    return SideRows(
        keys[rows],
        arrived.times[rows],
        np.full(len(rows), step, dtype=np.int64),
        arrived.places[rows],
        rows,
        columns.kept(arrived.rows.values, side, rows),
    )


def held_rows(state: TimedEntries, groups: Groups, keys: Int64s, frontier: int) -> SideRows:
    """The rows that a side holds, at a frontier, of the keys with these numbers, which ascend."""
    entries = state.entries_at(groups.hashes[keys], groups.keys.take(pa.array(keys)), frontier)
    times, steps, places = (part.to_numpy() for part in entries.subkeys.columns)
    rows = np.full(len(times), _HELD, dtype=np.int64)
    values = pa.Table.from_batches([entries.values])
    return SideRows(keys[entries.places], times, steps, places, rows, values)


def rows_due(due: DueEntries, keys: Int64s) -> SideRows:
    """The rows of a side that fall due; ``keys`` are the numbers of their keys."""
    times, steps, places = (part.to_numpy() for part in due.subkeys.columns)
    return SideRows(keys, times, steps, places, np.full(len(due), _HELD, np.int64), due.values)


def concat_sides(schema: pa.Schema, parts: Sequence[SideRows]) -> SideRows:
    """Concatenate rows of one side, whose columns are those of the schema; none are no rows."""
    empty = np.empty(0, dtype=np.int64)
    values = [part.values.cast(schema) for part in parts]
    return SideRows(
        np.concatenate([empty, *(part.keys for part in parts)]),
        np.concatenate([empty, *(part.times for part in parts)]),
        np.concatenate([empty, *(part.steps for part in parts)]),
        np.concatenate([empty, *(part.places for part in parts)]),
        np.concatenate([empty, *(part.rows for part in parts)]),
        pa.concat_tables([schema.empty_table(), *values]).combine_chunks(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class NumberedKeys:
    """The keys of a step, with their numbers for the arrivals and for what falls due."""

    groups: Groups
    arrived: Int64s
    due: tuple[Int64s, ...]


def number_keys(arrived: Arrivals | None, due: Sequence[DueEntries | None]) -> NumberedKeys | None:
    """Number the keys of what has come and of what falls due; None if there is neither."""
    some = [part for part in due if part is not None]
    parts = [(part.hashes, part.keys) for part in some]
    if arrived is not None:
        assert arrived.rows.hashes is not None
        assert arrived.rows.keys is not None
        keys = arrived.rows.keys
        parts.append((arrived.rows.hashes, keys.cast(some[0].keys.schema) if some else keys))
    if not parts:
        return None
    groups = group_keys(
        np.concatenate([hashes for hashes, _ in parts]),
        pa.concat_tables([keys for _, keys in parts]),
    )
    edges = np.cumsum([0 if part is None else len(part) for part in due])
    *numbers, rest = np.split(groups.group_of_row, edges)
    return NumberedKeys(groups, rest, tuple(numbers))
