"""The event times of rows in Python, and the latest of those that are read."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.dataflow.graph import TimestampsNode
from anabranch.errors import MissingTime, ReadFailed
from anabranch.messages import ReadTime
from anabranch.plan.physical import SeenBy, TimeAssignment
from anabranch.protocol.sources import OWN_TIME
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR
from anabranch.task.event_times import LatestTimes, bounded_times, has_time, row_times, told_times

NOW = 1_000_000_000
HOUR = 3_600_000_000


def assignment(column: str | None = "at", name: str = "orders", **node: Any) -> TimeAssignment:
    return TimeAssignment(TimestampsNode(1, (0,), column, **node), name, "orders", SeenBy.READER)


def rows(times: list[int | None], zone: str | None = "UTC") -> pa.RecordBatch:
    at = pa.array(times, pa.int64()).cast(pa.timestamp("us", zone))
    return pa.RecordBatch.from_arrays([at, pa.array(range(len(times)))], names=["at", "n"])


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_are_microseconds_in_utc(zone: str | None) -> None:
    day = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=None if zone is None else dt.UTC)
    given = pa.table({"at": pa.array([day], pa.timestamp("us", zone))})
    assert row_times(assignment(), given, NOW).tolist() == [1767323045678901]


def test_column_names_are_case_insensitive() -> None:
    assert row_times(assignment("AT"), rows([7]), NOW).tolist() == [7]


def test_the_time_of_arrival_is_the_clock() -> None:
    assert row_times(assignment(None), rows([7, None]), NOW).tolist() == [NOW, NOW]


def test_no_rows_have_no_times() -> None:
    empty = pa.table({"at": pa.chunked_array([], pa.timestamp("us", "UTC"))})
    assert len(row_times(assignment(), empty, NOW)) == 0


@pytest.mark.parametrize(
    ("ahead", "given", "expected"),
    [
        (None, NOW + HOUR, NOW + HOUR),
        (HOUR, NOW + HOUR, NOW + HOUR),
        (HOUR, NOW + HOUR + 1, TOO_FAR),
        (0, NOW, NOW),
        (0, NOW + 1, TOO_FAR),
        # No row may end time.
        (None, END_OF_TIME - 1, END_OF_TIME - 1),
        (None, END_OF_TIME, TOO_FAR),
        (None, EARLIEST - 1, EARLIEST),
    ],
)
def test_a_row_may_be_ahead_of_the_clock_as_far_as_is_said(
    ahead: int | None, given: int, expected: int
) -> None:
    assert row_times(assignment(ahead_us=ahead), rows([given]), NOW).tolist() == [expected]


def test_a_row_without_a_time_is_named() -> None:
    with pytest.raises(MissingTime, match="'n': 1") as raised:
        row_times(assignment(), rows([7, None, 8]), NOW)
    assert "orders" in raised.value.what
    assert "'at'" in (raised.value.where or "")


def test_which_rows_have_times() -> None:
    assert has_time(assignment(), rows([7, None])).to_pylist() == [True, False]
    assert has_time(assignment(None), rows([7, None])).to_pylist() == [True, True]


def test_the_latest_time_of_each_partition_counts() -> None:
    latest = LatestTimes([assignment()], NOW)
    for partition, times in ((0, [5, 9, 7]), (1, [3]), (0, [8]), (1, [4])):
        latest.see(rows([*times]), partition)
    assert set(latest.found()) == {ReadTime("orders", 0, 9), ReadTime("orders", 1, 4)}


def test_several_inputs_see_the_same_rows() -> None:
    latest = LatestTimes([assignment(), assignment(None, "orders#2")], NOW)
    latest.see(rows([5]), None)
    assert set(latest.found()) == {ReadTime("orders", None, 5), ReadTime("orders#2", None, NOW)}


def test_a_row_too_far_ahead_moves_nothing() -> None:
    latest = LatestTimes([assignment(ahead_us=HOUR)], NOW)
    latest.see(rows([NOW + HOUR + 1]), 0)
    assert latest.found() == ()
    latest.see(rows([NOW - 5, NOW + HOUR + 1]), 0)
    assert latest.found() == (ReadTime("orders", 0, NOW - 5),)


def test_a_row_without_a_time_does_not_count_if_it_becomes_a_dead_letter() -> None:
    latest = LatestTimes([assignment(on_error="dead-letter")], NOW)
    latest.see(rows([5, None]), 0)
    latest.see(rows([None]), 1)
    assert latest.found() == (ReadTime("orders", 0, 5),)


def test_nothing_is_seen_of_no_rows() -> None:
    latest = LatestTimes([assignment()], NOW)
    latest.see(rows([]), 0)
    assert latest.found() == ()
    assert isinstance(row_times(assignment(), rows([1]), NOW), np.ndarray)


def test_times_may_be_told_beside_the_rows() -> None:
    told = pa.array([5, NOW + HOUR + 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"n": [1, 2], OWN_TIME: told})
    assert told_times("orders", batch).tolist() == [5, NOW + HOUR + 1]
    beside = TimeAssignment(
        TimestampsNode(1, (0,), OWN_TIME, ahead_us=HOUR), "orders", "orders", SeenBy.READER, True
    )
    assert bounded_times(beside, told_times("orders", batch), NOW).tolist() == [5, TOO_FAR]
    latest = LatestTimes([beside], NOW)
    assert latest.told
    latest.see(batch, 3)
    assert latest.found() == (ReadTime("orders", 3, 5),)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None], pa.timestamp("us")),
        pa.array([1], pa.int64()),
        pa.array([1], pa.timestamp("ms")),
        None,
    ],
)
def test_a_source_that_tells_times_tells_all_of_them(column: pa.Array | None) -> None:
    batch = pa.record_batch({"n": [1], **({} if column is None else {OWN_TIME: column})})
    with pytest.raises(ReadFailed, match="'orders' does not tell the time of every row"):
        told_times("orders", batch)
