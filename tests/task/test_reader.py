"""Where rows stand: as they say, or counted."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from anabranch.errors import ReadFailed
from anabranch.protocol.sources import OWN_TIME, POSITION
from anabranch.task.reader import with_positions, without_own_times

SCHEMA = pa.schema([("n", pa.int64())])


def batch(values: Sequence[int], positions: Sequence[int | None] | None = None) -> pa.RecordBatch:
    columns = {"n": pa.array(values, pa.int64())}
    if positions is not None:
        columns = {POSITION: pa.array(positions, pa.int32()), **columns}
    return pa.RecordBatch.from_pydict(columns)


def read(*batches: pa.RecordBatch, first: int = 0, past: int | None = None) -> list[list[int]]:
    found = []
    for rows, positions in with_positions(batches, SCHEMA, first, past):
        assert rows.schema == SCHEMA
        found.append(positions.tolist())
    return found


def test_rows_are_counted_over_all_batches_from_the_first_on() -> None:
    assert read(batch([7, 8]), batch([]), batch([9]), first=3, past=6) == [[3, 4], [], [5]]


def test_rows_that_say_where_they_stand_may_leave_positions_out() -> None:
    given = (batch([7, 8], [3, 9]), batch([], []), batch([9], [12]))
    assert read(*given, first=3, past=13) == [[3, 9], [], [12]]


def test_what_follows_rows_with_positions_is_counted_from_them() -> None:
    assert read(batch([7], [5]), batch([8, 9])) == [[5], [6, 7]]


@pytest.mark.parametrize(
    ("given", "past"),
    [
        ([batch([7, 8], [4, 4])], None),
        ([batch([7, 8], [5, 4])], None),
        ([batch([7], [2])], None),
        ([batch([7], [5]), batch([8], [5])], None),
        ([batch([7], [9])], 9),
        ([batch([7, 8])], 4),
    ],
)
def test_positions_ascend_within_the_slice(given: list[pa.RecordBatch], past: int | None) -> None:
    with pytest.raises(ReadFailed, match="ascend from"):
        read(*given, first=3, past=past)


def test_a_row_without_a_position_is_refused() -> None:
    with pytest.raises(ReadFailed, match="without NULLs"):
        read(batch([7, 8], [4, None]))


def test_a_column_of_the_schema_is_no_position() -> None:
    schema = pa.schema([(POSITION, pa.int64())])
    rows = pa.RecordBatch.from_pydict({POSITION: pa.array([5, 5], pa.int64())})
    ((found, positions),) = with_positions([rows], schema)
    assert found.schema == schema
    assert positions.tolist() == [0, 1]


def test_times_beside_the_rows_stay_until_they_are_taken_off() -> None:
    told = pa.array([7, 8], pa.timestamp("us"))
    rows = pa.record_batch({OWN_TIME: told, "n": [1, 2], POSITION: [4, 9]})
    schema = pa.schema({"n": pa.int64()})
    ((found, positions),) = with_positions([rows], schema)
    assert (found.schema.names, positions.tolist()) == (["n", OWN_TIME], [4, 9])
    assert without_own_times(found, schema).schema.names == ["n"]
    # A column of the schema is none.
    own = pa.schema({OWN_TIME: told.type})
    assert without_own_times(found.select([OWN_TIME]), own).schema.names == [OWN_TIME]
