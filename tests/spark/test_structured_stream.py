"""Structured Streaming as a source: every batch is logged once, whatever is killed or repeated."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import ChangedDataflow, FileGone, ReadFailed, StreamFailed
from anabranch.sources.structured_stream import batch_of
from tests.spark.running import bag, completed, failure, stopped_after, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "k string, n bigint"
MODULUS = 2**61 - 1
ROWS = 10


def mix(key: Any, row: Any, state: Any) -> Any:
    """Another order of a key's rows gives another result."""
    mixed = ((state or 7) * 31 + row.n + 1) % MODULUS
    return (row.n, mixed), mixed


def expected(files: int) -> list[tuple[int, int]]:
    """What ``mix`` gives over the rows of so many files in order, in plain Python."""
    states: dict[str, int] = defaultdict(lambda: 7)
    found = []
    for n in range(files * ROWS):
        key = f"k{n % 3}"
        states[key] = (states[key] * 31 + n + 1) % MODULUS
        found.append((n, states[key]))
    return found


def write_files(directory: Path, first: int, last: int) -> None:
    """Files of numbered rows; the streaming reader takes them by time of change."""
    for number in range(first, last):
        rows = range(number * ROWS, (number + 1) * ROWS)
        path = directory / f"{number:03d}.json"
        write_json(path, [{"k": f"k{n % 3}", "n": n} for n in rows])
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def files_of(directory: Path, condition: str = "true") -> Callable[[SparkSession], DataFrame]:
    """One batch per file."""

    def make(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(directory)).where(condition)

    return make


def flow_of(source: ab.StructuredStreamSource, sink: ab.MemorySink) -> ab.Dataflow:
    flow = ab.Dataflow("streamed")
    flow.source("rows", source).key_distribute("by-k", "k").stateful_map(
        "mix", mix, state="mixed bigint", output="n bigint, mixed bigint"
    ).sink("out", sink)
    return flow


def ending(directory: Path, **options: Any) -> ab.StructuredStreamSource:
    return ab.StructuredStreamSource(files_of(directory), watch=False, **options)


def check_rows(sink: ab.MemorySink, files: int) -> None:
    assert bag((row["n"], row["mixed"]) for row in sink.rows()) == bag(expected(files))


class Ended(ab.AnabranchError):
    """A run that a test ends at some point."""


def end_at(point: str, step: int) -> Callable[[str, int], None]:
    def reached(at: str, number: int) -> None:
        if (at, number) == (point, step):
            raise Ended("as the test wants it")

    return reached


def log_names(state: Path) -> list[str]:
    (room,) = (state / "input" / "rows").iterdir()
    return sorted(path.name for path in room.iterdir())


def markers(state: Path) -> list[int]:
    return [int(name[:12]) for name in log_names(state) if name.endswith(".json")]


def forget_last_batch(state: Path) -> None:
    """As if Spark had ended before it noted that its last batch is done: it repeats it."""
    log = state / "query" / "rows" / "commits"
    last = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (log / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(("batches", "steps"), [(1, 5), (2, None)])
def test_all_rows_once_in_order(tmp_path: Path, batches: int, steps: int | None) -> None:
    write_files(tmp_path / "in", 0, 5)
    sink = ab.MemorySink()
    source = ending(tmp_path / "in", max_batches_per_step=batches)
    pipeline = completed(flow_of(source, sink), tmp_path / "state")
    check_rows(sink, 5)
    if steps is not None:
        assert pipeline.status().step == steps
    # The checkpoint at the end has passed them all.
    assert markers(tmp_path / "state") == []


def test_the_query_waits_when_it_is_far_ahead(tmp_path: Path) -> None:
    """While step s is under way, batch s-1 is read, batch s waits, and two more may be logged."""
    write_files(tmp_path / "in", 0, 5)
    sink = ab.MemorySink()
    newest: dict[int, int] = {}

    def reached(point: str, step: int) -> None:
        if point == "planned":
            while max(markers(tmp_path / "state")) < min(step + 1, 4):
                time.sleep(0.01)
            # Time for one that does not wait to go on.
            time.sleep(0.3)
            newest[step] = max(markers(tmp_path / "state"))

    source = ending(tmp_path / "in", max_batches_per_step=1, max_ahead=2)
    completed(flow_of(source, sink), tmp_path / "state", reached=reached)
    assert list(newest) == [1, 2, 3, 4, 5]
    assert all(step + 1 <= batch <= step + 2 for step, batch in newest.items() if step < 3)
    check_rows(sink, 5)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 3)
    sink = ab.MemorySink()
    live = ab.StructuredStreamSource(
        files_of(tmp_path / "in"), SCHEMA, max_batches_per_step=1, every="0 seconds"
    )
    stopped_after(3, flow_of(live, sink), tmp_path / "state")
    check_rows(sink, 3)
    write_files(tmp_path / "in", 3, 7)
    completed(flow_of(ending(tmp_path / "in"), sink), tmp_path / "state", workers=3)
    check_rows(sink, 7)
    write_files(tmp_path / "in", 7, 8)
    completed(flow_of(ending(tmp_path / "in"), sink), tmp_path / "state")
    check_rows(sink, 8)


@pytest.mark.parametrize("point", ["planned", "ran", "committed"])
def test_a_run_that_ends_between_log_and_step(tmp_path: Path, point: str) -> None:
    """Batches are logged that no step has read, and Spark repeats the last one: nothing twice."""
    write_files(tmp_path / "in", 0, 4)
    sink = ab.MemorySink()
    source = ending(tmp_path / "in", max_batches_per_step=1)
    state = tmp_path / "state"
    error = failure(flow_of(source, sink), state, reached=end_at(point, 2))
    assert str(Ended("as the test wants it").what) in str(error)
    before = log_names(state)
    forget_last_batch(state)
    after: list[str] = []

    def look(point: str, step: int) -> None:
        # The last one counts, whichever that is: a query that was ended after it had listed a file
        # and before it had planned its batch puts that file into one batch with the next.
        if point == "committed":
            after[:] = log_names(state)

    completed(flow_of(source, sink), state, reached=look)
    check_rows(sink, 4)
    # A repeated batch is skipped: it writes nothing. One that was not marked yet is written again.
    marked = {batch_of(name) for name in before if name.endswith(".json")}
    assert [name for name in after if batch_of(name) in marked] == [
        name for name in before if batch_of(name) in marked
    ]


def test_a_batch_that_is_repeated_after_its_step(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 3)
    sink = ab.MemorySink()
    state = tmp_path / "state"
    completed(flow_of(ending(tmp_path / "in"), sink), state)
    forget_last_batch(state)
    # Also without its marker: the position knows that it was read.
    for path in (state / "input").rglob("*.json"):
        path.unlink()
    write_files(tmp_path / "in", 3, 4)
    completed(flow_of(ending(tmp_path / "in"), sink), state)
    check_rows(sink, 4)


def test_files_without_a_marker_count_for_nothing(tmp_path: Path) -> None:
    """A batch was written and its marker was not: it is written again."""
    write_files(tmp_path / "in", 0, 1)
    sink = ab.MemorySink()
    state = tmp_path / "state"
    completed(flow_of(ending(tmp_path / "in"), sink), state)
    (room,) = (state / "input" / "rows").iterdir()
    left = f"{1:012d}-00000000-{'0' * 32}.parquet"
    (room / left).write_bytes(b"torn")
    write_files(tmp_path / "in", 1, 3)
    completed(flow_of(ending(tmp_path / "in"), sink), state)
    check_rows(sink, 3)


def test_batches_that_every_kept_checkpoint_has_passed_are_removed(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 20)
    sink = ab.MemorySink()
    source = ending(tmp_path / "in", max_batches_per_step=1)
    settings = ab.Settings(checkpoint_steps=4)
    pipeline = completed(flow_of(source, sink), tmp_path / "state", settings=settings)
    assert pipeline.status().step == 20
    check_rows(sink, 20)
    oldest = min(kept.step for kept in pipeline.status().checkpoints)
    assert 0 < oldest < 20
    assert markers(tmp_path / "state") == list(range(oldest, 20))
    assert {batch_of(name) for name in log_names(tmp_path / "state")} == set(range(oldest, 20))


def test_a_query_that_fails(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 4)
    sink = ab.MemorySink()
    broken = files_of(tmp_path / "in", "if(n = 25, raise_error('no 25'), true)")
    source = ab.StructuredStreamSource(broken, SCHEMA, watch=False)
    error = failure(flow_of(source, sink), tmp_path / "state")
    assert isinstance(error, StreamFailed)
    assert "no 25" in str(error)
    assert "\n" not in str(error)
    # What was logged before is not lost, and the mended query goes on.
    check_rows(sink, 2)
    completed(flow_of(ending(tmp_path / "in"), sink), tmp_path / "state")
    check_rows(sink, 4)


def test_a_query_that_cannot_start(tmp_path: Path) -> None:
    def make(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).json(str(tmp_path / "missing"))

    error = failure(flow_of(ab.StructuredStreamSource(make), ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed | StreamFailed)
    assert "missing" in str(error)


def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 1)
    flow = flow_of(ending(tmp_path / "in"), ab.MemorySink())
    completed(flow, tmp_path / "state")
    shutil.rmtree(tmp_path / "state" / "query")
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, ChangedDataflow)
    assert "gone" in str(error)
    assert not (tmp_path / "state" / "query").exists()


def test_a_logged_file_that_is_gone(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 1)
    flow = flow_of(ending(tmp_path / "in"), ab.MemorySink())
    assert isinstance(failure(flow, tmp_path / "state", reached=end_at("planned", 1)), Ended)
    for path in (tmp_path / "state" / "input").rglob("*.parquet"):
        path.unlink()
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, FileGone)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda spark: spark.range(3), "no streaming DataFrame"),
        (lambda spark: 7, "no streaming DataFrame"),
        (lambda spark: int("x"), "ValueError"),
    ],
)
def test_what_make_must_give(tmp_path: Path, make: Any, what: str) -> None:
    error = failure(flow_of(ab.StructuredStreamSource(make), ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert what in str(error)
    assert "'rows'" in str(error)


def test_a_schema_that_is_not_the_dataframes(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 0, 1)
    source = ab.StructuredStreamSource(files_of(tmp_path / "in"), "k string, n int", watch=False)
    flow = ab.Dataflow("streamed")
    flow.source("rows", source).sink("out", ab.MemorySink())
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "n int" in str(error)
    assert "BIGINT" in str(error).upper()


TYPES = (
    "s string, b binary, i int, l bigint, d double, t timestamp, u timestamp_ntz, e date, "
    "m decimal(12,3), f boolean, a array<int>, p map<string,bigint>, x struct<y: int, z: string>"
)
VALUES: list[dict[str, Any]] = [
    {
        "s": "é\n", "i": 1, "l": 2**40, "d": 0.5, "t": "2024-01-02T03:04:05.678901Z",
        "u": "2024-01-02T03:04:05.000001", "e": "1969-07-20", "m": "123456789.125", "f": True,
        "a": [1, None], "p": {"q": 7}, "x": {"y": 1, "z": None}, "b": "AQI=",
    },
    {},
]  # fmt: skip


def test_every_type_survives_the_log(tmp_path: Path, spark: SparkSession) -> None:
    lines = [json.dumps(row) for row in VALUES]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(lines) + "\n")

    def make(session: SparkSession) -> DataFrame:
        return session.readStream.schema(TYPES).json(str(tmp_path / "in"))

    sink = ab.MemorySink()
    flow = ab.Dataflow("types")
    flow.source("rows", ab.StructuredStreamSource(make, watch=False)).sink("out", sink)
    completed(flow, tmp_path / "state")
    first, second = sorted(sink.rows(), key=lambda row: row["s"] is None)
    assert second == dict.fromkeys(first)
    assert first == {
        "s": "é\n",
        "b": b"\x01\x02",
        "i": 1,
        "l": 2**40,
        "d": 0.5,
        "t": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
        "u": dt.datetime.fromisoformat("2024-01-02T03:04:05.000001"),
        "e": dt.date(1969, 7, 20),
        "m": decimal.Decimal("123456789.125"),
        "f": True,
        "a": [1, None],
        "p": {"q": 7},
        "x": {"y": 1, "z": None},
    }


def test_the_rate_source_beside_a_scripted_one(tmp_path: Path, spark: SparkSession) -> None:
    """A query that never ends, beside a source that does: shutting down stops it."""

    def make(spark: SparkSession) -> DataFrame:
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        return rate.selectExpr("value % 5 as k", "value as n")

    rates, pages = ab.MemorySink(), ab.MemorySink()
    flow = ab.Dataflow("two")
    flow.source("rate", ab.StructuredStreamSource(make)).key_distribute("by-k", "k").aggregate(
        "counts", n="count(*)", top="max(n)"
    ).sink("counts-out", rates)
    script = ab.ScriptedSource("w string", [[("a",)], ab.EOF])
    flow.source("pages", script).sink("pages-out", pages)
    pipeline = stopped_after_rows(spark, flow, tmp_path / "state", "counts-out", rates)
    assert [row["w"] for row in pages.rows()] == ["a"]
    state = {row["k"]: row for row in pipeline.state_table("counts").to_pylist()}
    # Rate numbers its rows from 0 without gaps: of key k there are as many as its highest says.
    assert all(row["n"] == (row["top"] - k) // 5 + 1 for k, row in state.items())
    assert active_queries(spark) == 0


def stopped_after_rows(
    spark: SparkSession, flow: ab.Dataflow, state: Path, sink_name: str, sink: ab.MemorySink
) -> ab.Pipeline:
    pipeline = ab.run(flow, directory=state, workers=2, bins=16)
    while not sink.rows():
        status = pipeline.wait(0.1)
        assert status.phase is ab.Phase.RUNNING, f"ended before {sink_name} had rows"
    assert active_queries(spark) == 1
    assert pipeline.shutdown().phase is ab.Phase.STOPPED
    return pipeline


def active_queries(spark: SparkSession) -> int:
    """How many streaming queries run, in whichever session."""
    return int(spark._jsparkSession.sharedState().activeStreamingQueries().size())
