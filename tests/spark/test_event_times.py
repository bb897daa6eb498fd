"""Event times on Spark: rows keep theirs, and each step tells how far they have come."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.dataflow.stream import Stream
from anabranch.errors import MissingTime
from anabranch.protocol.data_plane import WATCHED
from anabranch.protocol.sources import OWN_TIME
from anabranch.records.slices import RangeSlice
from anabranch.records.times import TOO_FAR
from tests.spark.running import completed, failure, state_of
from tests.spark.seen_times import SeenTimes, micros

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROW = "name string, value bigint, at timestamp"
SECOND = 1_000_000
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STEPS = 4
EACH = 10

Build = Callable[[Stream], Stream]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> SeenTimes:
    return SeenTimes(monkeypatch)


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def page(partition: int, start: int, end: int) -> dict[str, Any]:
    """A row a second; partitions are an hour apart, and rows out of order within ten."""
    numbers = [start + (3 * (n - start)) % (end - start) for n in range(start, end)]
    return {
        "name": [f"n{n % 3}" for n in numbers],
        "value": numbers,
        "at": pa.array([at(3600 * partition + n) for n in numbers], pa.timestamp("us", "UTC")),
    }


def generated(partitions: int = 2) -> ab.GeneratorSource:
    count = partitions * EACH
    return ab.GeneratorSource(
        page, ROW, partitions=partitions, rows_per_step=count, rows=STEPS * count
    )


def files(directory: Path, format: str = "parquet", schema: str = ROW) -> ab.FileSource:
    """One file a step."""
    directory.mkdir()
    for step in range(STEPS):
        table = pa.table(page(0, step * EACH, (step + 1) * EACH))
        path = directory / f"{step}.{format}"
        if format == "parquet":
            pq.write_table(table, path)
        else:
            rows = [{**row, "at": row["at"].isoformat()} for row in table.to_pylist()]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ab.FileSource(directory, format=format, schema=schema, watch=False, max_files_per_step=1)


def total(key: Any, row: Any, state: Any) -> Any:
    return (key.name, row.value, row.at), (state or 0) + row.value


def mapped(stream: Stream, name: str = "total") -> Stream:
    keyed = stream.key_distribute(f"by-{name}", "name")
    return keyed.stateful_map(name, total, state="n bigint", output=ROW)


def ran(build: Build, source: Any, directory: Path) -> tuple[ab.Pipeline, ab.MemorySink]:
    flow, sink = ab.Dataflow("times"), ab.MemorySink()
    build(flow.source("rows", source)).sink("out", sink)
    return completed(flow, directory / "state"), sink


def ends(partition: int = 0) -> list[int | None]:
    """The latest time of each step."""
    return [micros(at(3600 * partition + EACH * (n + 1) - 1)) for n in range(STEPS)]


def same(df: DataFrame) -> DataFrame:
    return df


def shown(df: DataFrame) -> DataFrame:
    """The event times as a column."""
    return df.withColumn("time", F.col("_time"))


def known(stream: Stream) -> Stream:
    """The rows after SQL that keeps all."""
    return stream.where("value >= 0")


def batches(stream: Stream) -> Stream:
    return stream.map_batches("same", lambda table: table, output=ROW)


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_of_files_spark_sees_the_latest_time_of_each_step(
    tmp_path: Path, seen: SeenTimes, format: str
) -> None:
    source = files(tmp_path / "in", format)
    pipeline, _ = ran(lambda s: mapped(s.assign_timestamps("at")), source, tmp_path)
    assert seen.of("rows") == ends()
    assert seen.groups == {WATCHED}
    assert sum(state_of(pipeline, "total").values()) == sum(range(STEPS * EACH))


@pytest.mark.parametrize(
    ("build", "group"),
    [
        (lambda s: mapped(s.assign_timestamps("at")), "rows"),
        (lambda s: mapped(s.union(s).assign_timestamps("at")), "rows"),
        (lambda s: mapped(known(s).assign_timestamps("at")), WATCHED),
        (lambda s: mapped(batches(s).assign_timestamps("at")), WATCHED),
        (lambda s: mapped(known(s).assign_timestamps("at").transform("t", same)), WATCHED),
    ],
)
def test_of_what_python_reads_each_partition_is_seen(
    tmp_path: Path, seen: SeenTimes, build: Build, group: str
) -> None:
    ran(build, generated(), tmp_path)
    assert (seen.of("rows", 0), seen.of("rows", 1)) == (ends(0), ends(1))
    assert seen.groups == {group}


@pytest.mark.parametrize(
    "build",
    [
        lambda s: mapped(s.transform("t", same).assign_timestamps("at")),
        lambda s: mapped(s.assign_timestamps("at").transform("t", same)),
        lambda s: mapped(s.assign_timestamps("at")).transform("t", shown),
    ],
)
def test_beside_transforms_files_are_seen_too(
    tmp_path: Path, seen: SeenTimes, build: Build
) -> None:
    ran(build, files(tmp_path / "in"), tmp_path)
    assert seen.of("rows") == ends()


def test_rows_keep_their_times_through_regions(tmp_path: Path, seen: SeenTimes) -> None:
    """A transform shows the times that region tasks got, and gave on."""

    def build(stream: Stream) -> Stream:
        first = mapped(stream.assign_timestamps("at").where("value % 2 = 0"))
        return mapped(batches(first), "again").transform("shown", shown)

    _, sink = ran(build, generated(), tmp_path)
    rows = sink.rows()
    assert len(rows) == STEPS * EACH
    assert all(row["time"] == row["at"] for row in rows)


def test_the_time_of_a_row_is_in_its_rows(tmp_path: Path) -> None:
    """Arrival, rows too far ahead, and those at the ends of time."""
    far = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
    rows = [("a", 1, at(0)), ("b", 2, far)]

    def times(build: Build, name: str) -> dict[str, int]:
        source = ab.ScriptedSource(ROW, [rows, ab.EOF])
        flow, sink = ab.Dataflow("times"), ab.MemorySink()
        stamped = mapped(build(flow.source("rows", source)))
        stamped.transform("shown", numbered).sink("out", sink)
        completed(flow, tmp_path / name)
        return {row["name"]: row["time"] for row in sink.rows()}

    assert times(lambda s: s.assign_timestamps("at"), "plain") == {
        "a": micros(at(0)),
        "b": micros(far),
    }
    ahead = times(lambda s: s.assign_timestamps("at", ahead="1 hour"), "ahead")
    assert ahead == {"a": micros(at(0)), "b": TOO_FAR}
    before = micros(dt.datetime.now(dt.UTC))
    arrived = times(lambda s: s.assign_timestamps(ab.ARRIVAL), "arrival")
    assert arrived["a"] == arrived["b"]
    assert before - 60 * SECOND < arrived["a"] < micros(dt.datetime.now(dt.UTC))


def numbered(df: DataFrame) -> DataFrame:
    return df.withColumn("time", F.expr("unix_micros(_time)"))


UNTIMED = [("ann", 1, at(0)), ("bob", 2, None)]


def untimed_files(directory: Path) -> ab.FileSource:
    directory.mkdir()
    columns = zip(*UNTIMED, strict=True)
    names, values, times = (list(column) for column in columns)
    table = pa.table(
        {"name": names, "value": values, "at": pa.array(times, pa.timestamp("us", "UTC"))}
    )
    pq.write_table(table, directory / "1.parquet")
    return ab.FileSource(directory, format="parquet", schema=ROW, watch=False)


def untimed_script(directory: Path) -> ab.ScriptedSource:
    return ab.ScriptedSource(ROW, [UNTIMED, ab.EOF])


@pytest.mark.parametrize("source", [untimed_files, untimed_script])
@pytest.mark.parametrize("build", [lambda s: s, known])
def test_a_row_without_a_time_fails_the_step_and_is_named(
    tmp_path: Path, source: Callable[[Path], Any], build: Build
) -> None:
    flow = ab.Dataflow("times")
    rows = build(flow.source("rows", source(tmp_path / "in")))
    mapped(rows.assign_timestamps("at")).sink("out", ab.MemorySink())
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, MissingTime)
    assert "'rows'" in error.what
    assert "bob" in error.what
    assert "'at'" in (error.where or "")


@pytest.mark.parametrize("source", [untimed_files, untimed_script])
def test_a_row_without_a_time_may_become_a_dead_letter(
    tmp_path: Path, seen: SeenTimes, source: Callable[[Path], Any]
) -> None:
    flow, letters, sink = ab.Dataflow("times"), ab.MemorySink(), ab.MemorySink()
    flow.dead_letters("letters", letters)
    rows = flow.source("rows", source(tmp_path / "in"))
    mapped(rows.assign_timestamps("at", on_error="dead-letter")).sink("out", sink)
    completed(flow, tmp_path / "state")
    assert [row["name"] for row in sink.rows()] == ["ann"]
    (letter,) = letters.rows()
    kept = {key: letter[key] for key in ("operator", "kind", "error", "step")}
    assert kept == {"operator": "rows", "kind": "untimed", "error": "column at is NULL", "step": 1}
    assert json.loads(letter["row"])["name"] == "bob"
    assert [set(found.values()) for found in seen.steps.values()] == [{micros(at(0))}]


RARE = 100_000


def rare(partition: int, start: int, end: int) -> dict[str, Any]:
    """A row each millisecond; of a hundred thousand one is big."""
    numbers = np.arange(start, end)
    return {
        "name": np.where(numbers % 2 == 0, "even", "odd"),
        "value": np.where(numbers == 7, 1, 0),
        "at": pa.array(numbers * 1000 + micros(START)).cast(pa.timestamp("us", "UTC")),
    }


def rare_files(directory: Path) -> ab.FileSource:
    directory.mkdir()
    for step in range(4):
        table = pa.table(rare(0, step * RARE // 4, (step + 1) * RARE // 4))
        pq.write_table(table, directory / f"{step}.parquet")
    return ab.FileSource(directory, format="parquet", schema=ROW, watch=False, max_files_per_step=1)


def rare_rows(directory: Path) -> ab.GeneratorSource:
    return ab.GeneratorSource(rare, ROW, rows_per_step=RARE // 4, rows=RARE)


@pytest.mark.parametrize(
    ("source", "partition"), [(rare_files, None), (rare_rows, 0)], ids=["jvm", "python"]
)
def test_time_goes_on_though_a_where_keeps_one_row_in_a_hundred_thousand(
    tmp_path: Path, seen: SeenTimes, source: Callable[[Path], Any], partition: int | None
) -> None:
    flow = ab.Dataflow("rare")
    rows = flow.source("rows", source(tmp_path / "in")).assign_timestamps("at").where("value = 1")
    mapped(rows).sink("out", sink := ab.MemorySink())
    completed(flow, tmp_path / "state")
    assert [row["name"] for row in sink.rows()] == ["odd"]
    ends = [micros(START) + 1000 * (step * RARE // 4 - 1) for step in range(1, 5)]
    assert seen.of("rows", partition) == ends


class Telling(ab.GeneratorSource):
    """Tells the times beside its rows, an hour after those in the column."""

    tells_times = True

    def read(self, slice: RangeSlice, /) -> Iterator[pa.RecordBatch]:
        for batch in super().read(slice):
            hour = pa.scalar(3600 * SECOND, pa.duration("us"))
            yield batch.append_column(OWN_TIME, pc.add(batch.column("at"), hour))


@pytest.mark.parametrize("ahead", [None, "1 hour"])
def test_a_source_may_tell_its_own_times(
    tmp_path: Path, seen: SeenTimes, ahead: str | None
) -> None:
    source = Telling(page, ROW, partitions=2, rows_per_step=2 * EACH, rows=STEPS * 2 * EACH)

    def build(stream: Stream) -> Stream:
        rows = mapped(stream.assign_timestamps(OWN_TIME, ahead=ahead).where("value % 2 = 0"))
        return rows.transform("shown", numbered)

    _, sink = ran(build, source, tmp_path)
    assert (seen.of("rows", 0), seen.of("rows", 1)) == (ends(1), ends(2))
    assert seen.groups == {"rows"}
    rows = sink.rows()
    assert len(rows) == STEPS * EACH
    assert all(row["time"] == micros(row["at"]) + 3600 * SECOND for row in rows)


@pytest.mark.parametrize(("partitions", "numbers"), [(3, [0, 1, 2]), (65, [None])])
def test_of_many_partitions_behind_sql_the_source_is_seen_as_a_whole(
    tmp_path: Path, seen: SeenTimes, partitions: int, numbers: list[int | None]
) -> None:
    ran(lambda s: mapped(known(s).assign_timestamps("at")), generated(partitions), tmp_path)
    assert all(
        list(found) == [("rows", number) for number in numbers] for found in seen.steps.values()
    )
    assert seen.of("rows", numbers[-1]) == ends(partitions - 1)


@pytest.mark.parametrize("between", [lambda s: s, lambda s: s.transform("same", same)])
def test_what_a_window_gives_is_not_late_in_the_next_region(tmp_path: Path, between: Build) -> None:
    """It is behind the frontier, and marked: in the exchange, and inside ``_ord``."""
    pages = [
        [("a", 1, at(second)) for second in (1, 3, 12)],
        [("b", 1, at(second)) for second in (14, 15, 41)],
    ]
    flow, sink, late = ab.Dataflow("windows"), ab.MemorySink(), ab.MemorySink()
    rows = flow.source("rows", ab.ScriptedSource(ROW, [*pages, ab.EOF])).assign_timestamps("at")
    ten = ab.tumbling("10 seconds")
    first = rows.key_distribute("by-name", "name").window(ten).aggregate("n", n="count(*)")
    ends = between(first).key_distribute("by-end", end="window_end")
    second = ends.window(ten).aggregate("m", m="sum(n)")
    second.sink("out", sink)
    second.late.sink("late", late)
    completed(flow, tmp_path / "state")
    assert sorted((row["end"], row["m"]) for row in sink.rows()) == [
        (at(10), 2),
        (at(20), 3),
        (at(50), 1),
    ]
    assert late.rows() == []
