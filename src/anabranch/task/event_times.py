"""Event times of rows in Python: what ``plan/time_sql.py`` says, over Arrow's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import MissingTime, ReadFailed
from anabranch.messages import ReadTime
from anabranch.operators.error_text import short
from anabranch.operators.order.row_order import Int64s
from anabranch.plan.physical import TimeAssignment
from anabranch.protocol.sources import OWN_TIME
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR
from anabranch.runs.keys import one_chunk

Table: TypeAlias = "pa.Table | pa.RecordBatch"


def missing_time(source: str, column: str | None, row: str) -> MissingTime:
    """The error for a row without an event time."""
    return MissingTime(
        f"Source {source!r} has a row whose time is NULL: {row}",
        where=f"column {column!r} of assign_timestamps",
        do='Give assign_timestamps on_error="dead-letter" and run the pipeline again: it reads the '
        "rows again, and such a row goes to the dead letters.",
    )


def row_times(assignment: TimeAssignment, rows: Table, clock_us: int) -> Int64s:
    """The time of each row: ``TOO_FAR`` for those too far ahead of the clock.

    ``MissingTime`` if a row has none.
    """
    node = assignment.node
    if node.column is None:
        return np.full(rows.num_rows, clock_us, dtype=np.int64)
    # A timestamp without a zone counts as UTC, which is the session's zone.
    times = one_chunk(rows.column(_own_name(rows.schema, node.column))).cast(pa.int64())
    if times.null_count:
        place = pc.index(pc.is_null(times), True).as_py()
        row = rows.slice(place, 1).to_pylist()[0]
        raise missing_time(assignment.source, node.column, short(row))
    return bounded_times(assignment, times.to_numpy(), clock_us)


def bounded_times(assignment: TimeAssignment, times: Int64s, clock_us: int) -> Int64s:
    """The times, those too far ahead of the clock replaced by ``TOO_FAR``."""
    last, ahead = END_OF_TIME - 1, assignment.node.ahead_us
    if ahead is not None:
        last = min(last, clock_us + ahead)
    return np.where(times > last, TOO_FAR, np.maximum(times, EARLIEST))


def told_times(source: str, rows: Table) -> Int64s:
    """The times that a source tells beside its rows; ``ReadFailed`` if it does not."""
    if OWN_TIME in rows.schema.names:
        column = one_chunk(rows.column(OWN_TIME))
        is_time = pa.types.is_timestamp(column.type) and column.type.unit == "us"
        if is_time and not column.null_count:
            times: Int64s = column.cast(pa.int64()).to_numpy()
            return times
    raise ReadFailed(
        f"Source {source!r} does not tell the time of every row",
        do=f"Let each of its batches have a column {OWN_TIME} of timestamps in microseconds, none "
        "of them NULL.",
    )


def has_time(assignment: TimeAssignment, rows: Table) -> pa.ChunkedArray | pa.Array:
    """Which rows have a time."""
    column = assignment.node.column
    if column is None:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return pc.is_valid(rows.column(_own_name(rows.schema, column)))


class LatestTimes:
    """The latest event times of what a task reads, for each input and partition."""

    def __init__(self, assignments: Sequence[TimeAssignment], clock_us: int) -> None:
        self._assignments = assignments
        self._clock_us = clock_us
        self._latest: dict[tuple[str, int | None], int] = {}

    @property
    def told(self) -> bool:
        """Whether the source tells times beside its rows, and somebody uses them."""
        return any(each.told for each in self._assignments)

    def see(self, rows: Table, partition: int | None) -> None:
        """Take note of rows of a partition. Rows too far ahead do not count."""
        for assignment in self._assignments:
            timed = rows
            if assignment.node.on_error == "dead-letter":
                timed = rows.filter(has_time(assignment, rows))
            if assignment.told:
                told = told_times(assignment.source, rows)
                times = bounded_times(assignment, told, self._clock_us)
            else:
                times = row_times(assignment, timed, self._clock_us)
            times = times[times < END_OF_TIME]
            if len(times):
                key, latest = (assignment.input, partition), int(times.max())
                self._latest[key] = max(latest, self._latest.get(key, latest))

    def found(self) -> tuple[ReadTime, ...]:
        """What was seen."""
        return tuple(ReadTime(*key, latest) for key, latest in self._latest.items())


def _own_name(schema: pa.Schema, column: str) -> str:
    """The column as the schema spells it: names are case-insensitive."""
    found: str = next(name for name in schema.names if name.lower() == column.lower())
    return found
