"""Nexmark's benchmark: its data, and what it takes for the time that a window takes to close."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.child import Spec
from benchmarks.measure import Batch, Outcome
from benchmarks.nexmark import due
from benchmarks.nexmark.closing import waits, window_ends
from benchmarks.nexmark.data import write_events
from benchmarks.nexmark.report import nexmark
from benchmarks.results import Result, Results
from benchmarks.sizes import EventStream
from examples.nexmark.generator import Nexmark

STREAM = EventStream("tiny", events=100, rate=10, batches=3, warm=1)
START = datetime.fromtimestamp(Nexmark().base / 1_000_000, UTC)


def test_a_batch_is_two_files_of_each_kind_in_the_order_of_their_time(tmp_path: Path) -> None:
    write_events(tmp_path / "data", STREAM)
    rows = {}
    for kind in ("person", "auction", "bid"):
        by_time = sorted(
            (tmp_path / "data" / kind).iterdir(), key=lambda path: path.stat().st_mtime
        )
        assert [path.name for path in by_time] == [
            f"{batch:05d}-{half}.parquet" for batch in range(3) for half in range(2)
        ]
        rows[kind] = [pq.read_metadata(path).num_rows for path in by_time]
    assert rows == {"person": [1] * 6, "auction": [3] * 6, "bid": [46] * 6}


def test_a_batch_is_as_long_as_a_window(tmp_path: Path) -> None:
    write_events(tmp_path / "data", STREAM)
    second = pq.read_table(tmp_path / "data" / "bid" / "00001-0.parquet")["at"].to_pylist()
    assert START + timedelta(seconds=10) <= min(second) < START + timedelta(seconds=11)


def test_windows_are_numbered_from_the_first_event_on(tmp_path: Path) -> None:
    ends = [START + timedelta(seconds=seconds) for seconds in (10, 30, 10)]
    pq.write_table(pa.table({"window_end": ends}), tmp_path / "some.parquet")
    pq.write_table(
        pa.table({"window_end": ends[:0]}, pa.schema([("window_end", pa.timestamp("us"))])),
        tmp_path / "none.parquet",
    )
    assert window_ends(tmp_path.iterdir()) == {1, 3}


def test_a_window_takes_from_the_batch_that_closes_it_to_the_one_that_publishes_it() -> None:
    # Batch 2 closes window 1, which batch 3 publishes; batch 3 closes window 2, which an empty
    # batch 4 publishes; nothing but the end closes window 3.
    began = {1: 10.0, 2: 20.0, 3: 30.0}
    published = {3: 33.5, 4: 41.0, 5: 50.0}
    found = waits({3: {1}, 4: {2}, 5: {3}}, began, published)
    assert [batch.seconds for batch in found] == [13.5, 11.0]


def test_what_falls_due_is_found_among_many_and_few(tmp_path: Path) -> None:
    spec = Spec("", str(tmp_path), "", 60.0, {"many": 20_000, "few": 2_000})
    outcome = due.measure(spec)
    assert [batch.rows for batch in outcome.batches] == [1_000] * due.SEARCHES
    assert float(outcome.info["many: median"]) > 0


def test_a_report_without_nexmark_says_nothing_of_it() -> None:
    assert list(nexmark(Results("full", {}, (Result("latency", "ours", 0),)))) == []


@pytest.mark.parametrize("failure", ["", "left out"])
def test_a_query_stands_beside_the_other_side(failure: str) -> None:
    ours = Result("nexmark-q17", "ours", 0, Outcome((Batch(1_000, 0.5),), 1.0))
    outcome = None if failure else Outcome((Batch(1_000, 2.0),), 1.0)
    theirs = Result("nexmark-q17", "hdfs", 0, outcome, failure)
    text = "\n".join(nexmark(Results("full", {}, (ours, theirs))))
    assert "17: counts and prices" in text
    assert ("4.0×" in text) == (not failure)
