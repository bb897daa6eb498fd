"""Sinks on a real Spark: every format that it writes, callbacks, sinks that leave."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import BuildError, CallbackFailed, ChangedDataflow, InvalidDataflow
from tests.spark.running import bag, completed, failure, rows_of

pytestmark = pytest.mark.spark

FLAT = "day string, n bigint, at timestamp, local timestamp_ntz, price decimal(10,2), x double"
NESTED = f"{FLAT}, tags array<string>, made struct<by:string,of:map<string,int>>"
AT = dt.datetime(2024, 1, 2, 3, 4, 5, 123456, dt.UTC)


def flat(n: int) -> tuple[Any, ...]:
    """A row with something in every column, and now and then nothing."""
    at = AT + dt.timedelta(microseconds=n)
    if n % 7 == 3:
        return ("none", n, None, None, None, None)
    price, x = Decimal(n) / 4, math.inf if n % 5 == 2 else n / 3
    return (f"d {n % 3}/x", n, at, at.replace(tzinfo=None), price.quantize(Decimal("0.01")), x)


def nested(n: int) -> tuple[Any, ...]:
    return (*flat(n), [f"t{n}", "x"], {"by": f"b{n}", "of": {"k": n}})


PAGES = [[nested(n) for n in range(10)], [], [nested(n) for n in range(10, 12)], [nested(12)]]
ROWS = [row for page in PAGES for row in page]


def source() -> ab.ScriptedSource:
    pages = [page if page else ab.PAUSE for page in PAGES]
    return ab.ScriptedSource(NESTED, [*pages, ab.EOF])


def read(spark: SparkSession, form: str, path: Path, schema: str, **options: Any) -> Any:
    """All rows of a directory as Spark reads them with nothing but the format and the schema."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    df = session.read.format(form).schema(schema).options(**options).load(str(path))
    return bag(rows_of(df.toArrow()))


def test_every_format_of_sparks_can_be_read_back(spark: SparkSession, tmp_path: Path) -> None:
    flow = ab.Dataflow("formats")
    rows = flow.source("rows", source())
    narrow = rows.select("day", "n", "at", "local", "price", "x")
    csv = ab.FileSink(tmp_path / "csv", "csv", {"header": True, "compression": "gzip"})
    narrow.sink("csv", csv)
    narrow.sink("xml", ab.FileSink(tmp_path / "xml", "xml", {"rowTag": "row"}))
    rows.sink("orc", ab.FileSink(tmp_path / "orc", "orc"))
    rows.sink("json", ab.FileSink(tmp_path / "json", "json", partition_by=["day", "n"]))
    rows.sink("parquet", ab.FileSink(tmp_path / "parquet", partition_by="day"))
    rows.select("day as line").sink("text", ab.FileSink(tmp_path / "text", "text"))
    completed(flow, tmp_path / "state")

    flats, whole = bag(row[:6] for row in ROWS), bag(ROWS)
    assert read(spark, "csv", tmp_path / "csv", FLAT, header=True) == flats
    assert all(path.suffix == ".gz" for path in (tmp_path / "csv").glob("step-*"))
    assert read(spark, "xml", tmp_path / "xml", FLAT, rowTag="row") == flats
    assert read(spark, "orc", tmp_path / "orc", NESTED) == whole
    for form in ("json", "parquet"):
        found = spark.read.format(form).schema(NESTED).load(str(tmp_path / form))
        found = found.select("day", "n", "at", "local", "price", "x", "tags", "made")
        assert bag(rows_of(found.toArrow())) == whole
    assert (tmp_path / "json" / "day=d 1%2Fx" / "n=1").is_dir()
    assert read(spark, "text", tmp_path / "text", "value string") == bag((r[0],) for r in ROWS)
    for name in ("csv", "xml", "orc", "json", "parquet", "text"):
        assert list((tmp_path / name / "_publishing").iterdir()) == []
        steps = {path.stem for path in (tmp_path / name / "_manifest").glob("step-*")}
        assert steps == {f"step-{step:012d}" for step in (1, 2, 3)}


def one_sink(sink: Any, schema: str = "n bigint, tags array<string>") -> ab.Dataflow:
    flow = ab.Dataflow("one")
    rows = flow.source("rows", ab.ScriptedSource(schema, [[(1, ["a"])], [(2, [])], ab.EOF]))
    rows.sink("out", sink)
    return flow


@pytest.mark.parametrize(
    ("form", "options", "report"),
    [
        ("nosuch", {}, "nosuch"),
        ("avro", {}, "avro"),
        ("noop", {}, "'noop' is not a file format.*CallbackSink"),
        ("console", {}, "'console' is not a file format"),
        ("orc", {"compression": "lzip"}, "lzip"),
        ("binaryFile", {}, "binaryfile"),
    ],
)
def test_what_spark_cannot_write_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, form: str, options: dict[str, str], report: str
) -> None:
    flow = one_sink(ab.FileSink(tmp_path / "out", form, options))
    with pytest.raises(BuildError, match=report):
        ab.run(flow, directory=tmp_path / "state")
    assert not (tmp_path / "state" / "journal" / "plan").exists()


def test_columns_that_do_not_fit_are_problems_of_the_dataflow(
    spark: SparkSession, tmp_path: Path
) -> None:
    for sink in (ab.FileSink(tmp_path, "csv"), ab.FileSink(tmp_path, "orc", partition_by="tags")):
        with pytest.raises(InvalidDataflow, match="'tags'"):
            ab.run(one_sink(sink), directory=tmp_path / "state")


class Calls:
    """A callback that keeps what it was called with; it raises as often as it is told to."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[tuple[Any, ...]]]] = []
        self.schemas: set[str] = set()
        self.pools: set[str] = set()
        self.failures = 0

    def __call__(self, df: DataFrame, step: int) -> None:
        self.seen.append((step, rows_of(df.toArrow())))
        self.schemas.add(df.schema.simpleString())
        pool = df.sparkSession.sparkContext.getLocalProperty("spark.scheduler.pool")
        self.pools.add(str(pool))
        assert SparkSession.getActiveSession() is not None
        df.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")


def test_a_callback_gets_each_step_with_rows_once_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = ab.Dataflow("callback")
    rows = flow.source("rows", source())
    calls, eleven = Calls(), Calls()
    rows.sink("calls", ab.CallbackSink(calls))
    rows.where("n = 11").sink("eleven", ab.CallbackSink(eleven))
    for _ in range(2):
        completed(flow, tmp_path / "state")
    assert [step for step, _ in calls.seen] == [1, 2, 3]
    pages = [page for page in PAGES if page]
    assert [bag(found) for _, found in calls.seen] == [bag(page) for page in pages]
    assert calls.schemas == {spark.createDataFrame([], NESTED).schema.simpleString()}
    assert calls.pools == {"publishing"}
    # A step without rows for a sink is skipped.
    assert [step for step, _ in eleven.seen] == [2]


def test_a_callback_that_raises_for_a_while_is_called_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls = Calls()
    calls.failures = 7
    flow = one_sink(ab.CallbackSink(calls, retry=ab.Retry(maximum=0.5)))
    completed(flow, tmp_path / "state")
    assert [step for step, _ in calls.seen] == [1] * 8 + [2]


def test_a_callback_that_goes_on_raising_stops_the_pipeline_and_is_called_with_the_step_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls = Calls()
    calls.failures = 1
    flow = one_sink(ab.CallbackSink(calls, retry=ab.Retry(timeout=0)))
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, CallbackFailed)
    assert "sink 'out' raised ConnectionError at step 1: 'the database is away'" in str(error)
    assert f"of {__file__}: " in str(error)
    assert [step for step, _ in calls.seen] == [1]
    # The sink cannot be left out while its output waits.
    without = ab.Dataflow("one")
    rows = ab.ScriptedSource("n bigint, tags array<string>", [[(1, ["a"])], [(2, [])], ab.EOF])
    without.source("rows", rows).sink("other", ab.MemorySink())
    gone = failure(without, tmp_path / "state")
    assert isinstance(gone, ChangedDataflow)
    assert "Sink 'out' is gone" in str(gone)
    completed(flow, tmp_path / "state")
    assert [step for step, _ in calls.seen] == [1, 1, 2]
    # Now it can.
    completed(without, tmp_path / "state")


def test_a_callback_does_not_keep_steps_from_running(spark: SparkSession, tmp_path: Path) -> None:
    committed = threading.Event()

    def watch(done: ab.StepDone) -> None:
        if done.step == 2:
            committed.set()

    EVENTS["beside"] = committed
    flow = one_sink(ab.CallbackSink(lambda df, step: waited("beside")))
    completed(flow, tmp_path / "state", watch=watch)


def test_a_sink_stays_close_to_the_commits_while_one_sleeps_and_one_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps, late = 12, 2
    LAGS.clear()
    FAILURES[:] = ["away"] * 4
    flow = ab.Dataflow("three")
    pages: list[Any] = [[(step, step)] for step in range(steps)]
    rows = flow.source("rows", ab.ScriptedSource("n bigint, m bigint", [*pages, ab.EOF]))
    # In the order in which the sleeping one and the failing one would come first.
    rows.sink("a-sleeping", ab.CallbackSink(lambda df, step: time.sleep(1)))
    rows.sink("b-failing", ab.CallbackSink(lambda df, step: fail_for_a_while()))
    rows.sink("c-third", ab.CallbackSink(lambda df, step: LAGS.append((step, LAST[0] - step))))
    LAST[0] = 0

    def watch(done: ab.StepDone) -> None:
        LAST[0] = done.step
        # As an input of one page every quarter of a second: a step is soon over.
        time.sleep(0.25)

    completed(flow, tmp_path / "state", watch=watch)
    assert [step for step, _ in LAGS] == list(range(1, steps + 1))
    assert max(lag for _, lag in LAGS) <= late
    assert not FAILURES


LAST = [0]
LAGS: list[tuple[int, int]] = []
FAILURES: list[str] = []


def fail_for_a_while() -> None:
    if FAILURES:
        raise ConnectionError(FAILURES.pop())


EVENTS: dict[str, threading.Event] = {}


def waited(name: str) -> None:
    assert EVENTS[name].wait(60), "no other step was committed meanwhile"


def test_sinks_written_by_spark_run_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    def flow(pages: int) -> ab.Dataflow:
        made = ab.Dataflow("again")
        script: list[Any] = [[(n, f"d{n % 2}")] for n in range(pages)]
        rows = made.source("rows", ab.ScriptedSource("n bigint, day string", [*script, ab.EOF]))
        rows.sink("out", ab.FileSink(tmp_path / "out", "orc", partition_by="day"))
        return made

    completed(flow(2), tmp_path / "state")
    completed(flow(2), tmp_path / "state", workers=1)
    found = spark.read.format("orc").load(str(tmp_path / "out"))
    assert found.toArrow().schema.names == ["n", "day"]
    assert sorted(rows_of(found.toArrow())) == [(0, "d0"), (1, "d1")]
    assert pa.types.is_int64(found.toArrow().schema.field("n").type)
