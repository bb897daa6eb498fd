"""The clock and the watchers of a step's query: each step has its own, also over a kept plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.validate import validate
from anabranch.messages import ReadTime
from anabranch.node.identity import fitting
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import FileSlice
from anabranch.rescale.assignments import equal_shares
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.code import save_program
from anabranch.spark.session import open_session
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.plane import SparkPlane
from anabranch.spark.step.step_frame import StepFrame
from anabranch.spark.step.step_query import StepQueries, StepQuery
from anabranch.task.program import Program
from tests.spark.running import completed
from tests.spark.seen_times import SeenTimes

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BINS = 8
ROW = "name string, value bigint, at timestamp"
Build = Callable[[Stream], Stream]


class Bench:
    """A plane over files, and the plans of its steps: step *n* reads file *n*."""

    def __init__(self, directory: Path, build: Build) -> None:
        flow = ab.Dataflow("watched")
        source = ab.FileSource(directory, format="parquet", schema=ROW)
        keyed = build(flow.source("rows", source)).key_distribute("by-name", "name")
        keyed.aggregate("n", n="count(*)").sink("out", ab.MemorySink())
        session = open_session(None)
        self.directory = directory
        self.program = Program(validate(flow.graph(), SparkAnalyzer(session)), BINS)
        code, sources = save_program(directory, self.program), SparkSources(session, directory)
        self.plane = SparkPlane(session, self.program, directory, code, sources)
        self.code = code

    def plan(self, step: int, *times: int) -> Plan:
        """A step over a file with these times; its clock is its number, in seconds."""
        path = self.directory / f"{step}.parquet"
        if not path.exists():
            at = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
            names = [f"n{i}" for i in range(len(times))]
            pq.write_table(pa.table({"name": names, "value": range(len(times)), "at": at}), path)
        size = path.stat()
        slices = (FileSlice(str(path), size.st_size, size.st_mtime_ns),)
        placement = equal_shares(["by-name"], BINS, 2, ())
        inputs = (Input("rows", slices, msgspec.Raw(b"1")),)
        return Plan(step, 0, step * 10**9, self.code, inputs, placement, 2)

    def query(self, plan: Plan) -> StepQuery:
        found = self.plane.query(plan)
        assert found is not None
        return found

    def collect(self, query: StepQuery, plan: Plan) -> tuple[ReadTime, ...]:
        """Run a query that was made before."""
        states = fitting(self.program, (), self.directory)
        self.plane._queries.fill(query, plan, states)
        query.frame.collect()
        return query.watchers.times()

    def run(self, plan: Plan) -> list[ReadTime]:
        states = fitting(self.program, (), self.directory)
        return [time for report in self.plane.run(plan, states) for time in report.times]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps whose queries Spark has planned."""
    found: list[int] = []
    build = StepFrame.build

    def counting(frame: StepFrame) -> DataFrame | None:
        found.append(frame.plan.step)
        return build(frame)

    monkeypatch.setattr(StepFrame, "build", counting)
    return found


def latest(*times: int) -> list[ReadTime]:
    return [ReadTime("rows", None, time) for time in times]


def test_a_kept_plan_watches_every_step_anew(
    spark: SparkSession, tmp_path: Path, planned: list[int]
) -> None:
    bench = Bench(tmp_path, lambda s: s.assign_timestamps("at"))
    # The times fall: nothing of an earlier step is left.
    for step in range(1, 6):
        assert bench.run(bench.plan(step, 70 - 10 * step, 3)) == latest(70 - 10 * step)
    assert planned == [1, 2], "later steps have a copy of the plan"


def test_two_steps_over_one_plan_do_not_mix(spark: SparkSession, tmp_path: Path) -> None:
    """The next query is there while a step runs."""
    bench = Bench(tmp_path, lambda s: s.assign_timestamps("at"))
    for step in (1, 2):
        bench.run(bench.plan(step, step))
    one, two = bench.plan(3, 30, 31), bench.plan(4, 20)
    first, second = bench.query(one), bench.query(two)
    assert bench.collect(first, one) == tuple(latest(31))
    assert second.watchers.times() == ()
    assert bench.collect(second, two) == tuple(latest(20))
    assert first.watchers.times() == tuple(latest(31))


def test_a_step_that_is_prepared_while_another_runs_has_its_own_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, prepared = SeenTimes(monkeypatch), list[int]()
    make = StepQueries.query

    def query(queries: StepQueries, plan: Plan) -> StepQuery | None:
        if threading.current_thread().name == "anabranch-prepare":
            prepared.append(plan.step)
        return make(queries, plan)

    monkeypatch.setattr(StepQueries, "query", query)
    steps = 8
    (tmp_path / "in").mkdir()
    for step in range(steps):
        times = pa.array([100 - step, 3], pa.int64()).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"name": ["a", "b"], "value": [1, 2], "at": times})
        pq.write_table(table, tmp_path / "in" / f"{step}.parquet")
    source = ab.FileSource(
        tmp_path / "in", format="parquet", schema=ROW, watch=False, max_files_per_step=1
    )

    def slowly(key: Any, row: Any, state: Any) -> Any:
        time.sleep(0.3)
        return (key.name,), None

    flow = ab.Dataflow("slowly")
    rows = flow.source("rows", source).assign_timestamps("at").key_distribute("by-name", "name")
    rows.stateful_map("slowly", slowly, output="name string").sink("out", ab.MemorySink())
    completed(flow, tmp_path / "state")
    assert seen.of("rows") == [100 - step for step in range(steps)]
    assert len(prepared) > 2


def test_the_clock_of_each_step_reaches_a_kept_plan(
    spark: SparkSession, tmp_path: Path, planned: list[int]
) -> None:
    bench = Bench(tmp_path, lambda s: s.assign_timestamps(ab.ARRIVAL))
    for step in range(1, 6):
        assert bench.run(bench.plan(step, 5)) == latest(step * 10**6)
    assert planned == [1, 2]


def test_how_far_ahead_a_row_may_be_goes_by_the_clock_of_its_step(
    spark: SparkSession, tmp_path: Path, planned: list[int]
) -> None:
    second = 10**6
    bench = Bench(tmp_path, lambda s: s.assign_timestamps("at", ahead="1 second"))
    for step in range(1, 6):
        # Of rows at every second, those up to one after the clock count.
        plan = bench.plan(step, *(n * second for n in range(9)))
        assert bench.run(plan) == latest((step + 1) * second)
    assert planned == [1, 2]
    assert bench.run(bench.plan(6, 100 * second)) == []


def test_a_filter_before_the_times_is_still_pushed_into_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, lambda s: s.where("value > 3").assign_timestamps("at", ahead="1 day"))
    query = bench.query(bench.plan(1, 5))
    text = query.frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(value), GreaterThan(value,3)]" in text
    # Only the columns that somebody uses are read.
    assert "ReadSchema: struct<name:string,value:bigint,at:timestamp>" in text
