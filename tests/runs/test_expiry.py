from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.records.bins import bin_of
from anabranch.records.layout import Layout
from anabranch.runs.expiry import PARTS, expired_rows, histogram_of, tombstone_expired
from anabranch.runs.run_file import open_run, write_run
from anabranch.runs.sorted_rows import hash_column
from tests.runs.state_model import key_schema, to_dicts

LAYOUT = Layout(key_schema("int64"), pa.schema([("n", pa.int64())]), expires=True)
BINS = 4


def rows(expiry: list[int | None]) -> pa.RecordBatch:
    """A row per time, spread over the bins."""
    count = len(expiry)
    hashes = np.arange(count, dtype=np.uint64) * np.uint64((2**64 - 1) // max(count, 1))
    columns = [
        pa.array(hashes),
        pa.array(range(count), pa.int64()),
        pa.array(range(count), pa.int64()),
        pa.array(expiry, pa.int64()),
        pa.array([False] * count, pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LAYOUT.schema)


TIMES = st.lists(st.none() | st.integers(-50, 50) | st.just(2**62), max_size=200)


@given(TIMES, st.integers(-60, 60))
def test_a_row_has_expired_from_its_time_on(expiry: list[int | None], now: int) -> None:
    expected = [time is not None and time <= now for time in expiry]
    assert expired_rows(LAYOUT, rows(expiry), now).tolist() == expected


@given(TIMES, st.integers(-60, 60))
def test_what_has_expired_becomes_a_tombstone(expiry: list[int | None], now: int) -> None:
    given_rows = rows(expiry)
    buried, expired = tombstone_expired(LAYOUT, given_rows, now)
    assert buried.schema == LAYOUT.schema
    for before, after, gone in zip(to_dicts(given_rows), to_dicts(buried), expired, strict=True):
        if gone:
            before |= {"v_n": None, "expiry": None, "tombstone": True}
        assert after == before


@given(TIMES, st.integers(-60, 60))
def test_the_histogram_never_says_too_much_and_misses_little(
    expiry: list[int | None], now: int
) -> None:
    batch = rows(expiry)
    histogram = histogram_of(LAYOUT, [batch], BINS)
    assert len(histogram.edges) <= PARTS
    said = histogram.expired(now)
    numbers = bin_of(hash_column(batch), BINS)
    true = np.bincount(numbers[expired_rows(LAYOUT, batch, now)], minlength=BINS)
    assert (said <= true).all()
    times = [time for time in expiry if time is not None]
    # The part that is cut by the clock is not larger than a part, but for equal times.
    commonest = max((times.count(time) for time in times), default=0)
    assert true.sum() - said.sum() <= len(times) / PARTS + 1 + commonest
    late = histogram.expired(2**62)
    assert late.sum() == len(times), "in the end all have expired"


@pytest.mark.parametrize("expiry", [[None] * 8, [5, None, 7, 9, 9, 9, 2**62, 1]])
def test_a_run_keeps_its_histogram(tmp_path: Path, expiry: list[int | None]) -> None:
    batch = rows(expiry)
    run = open_run(tmp_path, write_run(tmp_path, "run/a", "totals", LAYOUT, [batch], BINS))
    assert run.expiry is not None
    for now in (0, 1, 5, 8, 9, 2**62):
        true = expired_rows(LAYOUT, batch, now).sum()
        assert run.expiry.expired(now).sum() == true, "few times, each an edge"


def test_plain_runs_have_none(tmp_path: Path) -> None:
    plain = Layout(key_schema("int64"), pa.schema([("n", pa.int64())]))
    batch = rows([None] * 3).remove_column(LAYOUT.expiry_column)
    info = write_run(tmp_path, "run/a", "totals", plain, [batch], BINS)
    assert open_run(tmp_path, info).expiry is None
    with pa.memory_map(str(tmp_path / "run/a")) as file:
        metadata = pa.ipc.open_file(file).schema.metadata
    assert sorted(metadata) == [
        b"anabranch.bin_bytes",
        b"anabranch.bin_rows",
        b"anabranch.bins",
        b"anabranch.format",
    ]
