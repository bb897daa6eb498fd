"""The query of a step is planned while the one before runs, and is used if it is the right one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.dataflow.validate import validate
from anabranch.records.placed import Assignment
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import FileSlice, RangeSlice
from anabranch.rescale.assignments import equal_shares
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.session import open_session
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.plane import SparkPlane
from anabranch.spark.step.reading import ReadPart
from anabranch.spark.step.step_query import StepQueries, StepQuery
from anabranch.task.program import Program
from tests.spark.running import completed, eventually, state_of, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

STEPS = 8
BINS = 8


class Made:
    """Which queries were made, by whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[int, str]] = []
        make = StepQueries.query

        def query(queries: StepQueries, plan: Plan) -> StepQuery | None:
            self.steps.append((plan.step, threading.current_thread().name))
            return make(queries, plan)

        monkeypatch.setattr(StepQueries, "query", query)

    def by(self, thread: str) -> list[int]:
        return [step for step, name in self.steps if name == f"anabranch-{thread}"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def slowly(key: Any, row: Any, total: int | None) -> tuple[tuple[str, int], int]:
    time.sleep(0.01)
    return (key.name, (total or 0) + row.value), (total or 0) + row.value


def flow(source: Any, sink: ab.MemorySink) -> ab.Dataflow:
    made = ab.Dataflow("prepared")
    (
        made.source("rows", source)
        .key_distribute("by-name", "name")
        .stateful_map("slowly", slowly, state="total bigint", output="name string, total bigint")
        .sink("out", sink)
    )
    return made


def page(step: int) -> list[tuple[str, int]]:
    return [(f"n{i % 5}", step * 100 + i) for i in range(20)]


def totals() -> dict[str, int]:
    sums: Counter[str] = Counter()
    for step in range(STEPS):
        for name, value in page(step):
            sums[name] += value
    return dict(sums)


def test_a_step_whose_input_is_known_is_planned_beside_the_one_before(
    tmp_path: Path, made: Made
) -> None:
    for step in range(STEPS):
        rows = [{"name": name, "value": value} for name, value in page(step)]
        write_json(tmp_path / "in" / f"{step}.json", rows)
    source = ab.FileSource(
        tmp_path / "in",
        format="json",
        schema="name string, value bigint",
        watch=False,
        max_files_per_step=1,
    )
    sink = ab.MemorySink()
    pipeline = completed(flow(source, sink), tmp_path / "state")
    assert state_of(pipeline, "slowly") == totals()
    assert len(sink.steps()) == STEPS
    assert made.by("steps")[0] == 1
    assert made.by("prepare")
    every = sorted(step for step, _ in made.steps)
    assert every == sorted(set(every)), "a query was made twice"


def test_steps_of_a_rescale_are_planned_ahead_too(tmp_path: Path, made: Made) -> None:
    """A few bins move in every step; its tasks are the same."""
    source = ab.GeneratorSource(
        lambda partition, start, end: {"name": [f"n{i % 5}" for i in range(start, end)]},
        "name string",
        rows_per_step=20,
    )
    flow = ab.Dataflow("moving")
    counted = flow.source("rows", source).key_distribute("by-name", "name")
    counted.aggregate("counted", n="count(*)").sink("out", ab.MemorySink())
    moving: list[int] = []

    def watch(done: ab.StepDone) -> None:
        if pipeline.status().rescale is not None:
            moving.append(done.step)

    settings = ab.Settings(rescale=ab.RescaleSettings(policy=ab.MovePolicy.FLUID))
    pipeline = ab.run(
        flow, directory=tmp_path, workers=2, bins=BINS, settings=settings, watch=watch
    )
    try:
        eventually(lambda: pipeline.status().step >= 2)
        pipeline.scale(4)
        eventually(lambda: bool(pipeline.scale_history()))
    finally:
        status = pipeline.shutdown()
    assert set(moving) & set(made.by("prepare"))
    counts = state_of(pipeline, "counted")
    assert sum(counts.values()) == status.rows


def plane_of(source: Any, directory: Path) -> SparkPlane:
    session = open_session(None)
    program = Program(validate(flow(source, ab.MemorySink()).graph(), SparkAnalyzer(session)), BINS)
    return SparkPlane(session, program, directory, "code", SparkSources(session, directory))


@pytest.fixture
def plane(spark: SparkSession, tmp_path: Path) -> SparkPlane:
    return plane_of(ab.ScriptedSource("name string, value bigint", [ab.EOF]), tmp_path)


def plan(step: int, workers: int = 2, rows: int = 0, **more: Any) -> Plan:
    slices = (RangeSlice(0, 0, rows),) if rows else ()
    inputs = (Input("rows", slices, msgspec.Raw(b"1")),)
    placement = equal_shares(["by-name"], BINS, workers, ())
    return Plan(step, 0, step, "code", inputs, placement, 2, **more)


def test_what_was_prepared_is_used_once_and_only_for_the_same_step(
    plane: SparkPlane, made: Made
) -> None:
    assert not plane.prepare(plan(5)), "the step before has not begun"
    plane.query(plan(4))
    assert plane.prepare(plan(5))
    assert not plane.prepare(plan(5)), "it is prepared already"
    assert plane.query(plan(4)) is not None, "a step may run again"
    later = msgspec.structs.replace(plan(5), clock_ns=99)
    assert plane.query(later) is not None
    assert [step for step, _ in made.steps] == [4, 5, 4]
    assert plane.query(later) is not None
    assert [step for step, _ in made.steps] == [4, 5, 4, 5]


@pytest.mark.parametrize(
    "comes",
    [
        pytest.param(plan(6), id="another step"),
        pytest.param(msgspec.structs.replace(plan(5), revision=1), id="another revision"),
        pytest.param(plan(5, workers=3), id="other workers"),
    ],
)
def test_another_step_than_the_one_that_was_prepared_is_made_anew(
    plane: SparkPlane, made: Made, comes: Plan
) -> None:
    plane.query(plan(4))
    assert plane.prepare(plan(5))
    found = plane.query(comes)
    assert found is not None
    assert found.plan_key.seating[1].partitions == len(comes.workers("by-name"))
    assert len(made.steps) == 3


def test_a_query_serves_whichever_bins_the_same_workers_have(plane: SparkPlane, made: Made) -> None:
    plane.query(plan(4, rows=3))
    assert plane.prepare(plan(5, rows=3))
    comes = plan(5, rows=3)
    turned = msgspec.structs.replace(comes.placement[0], workers=comes.placement[0].workers[::-1])
    query = plane.query(msgspec.structs.replace(comes, placement=(turned,)))
    assert query is not None
    assert [step for step, _ in made.steps] == [4, 5]
    ((_, orders),) = query.orders
    assert [order.parts for order in orders] == [(ReadPart(0, RangeSlice(0, 0, 3)),)]


def test_a_query_for_other_read_tasks_than_the_step_has_is_not_used(
    tmp_path: Path, made: Made
) -> None:
    """Partitions have moved: two tasks were thought to read what one reads."""
    source = ab.GeneratorSource(
        lambda partition, start, end: {"name": ["n"] * (end - start), "value": range(start, end)},
        "name string, value bigint",
        partitions=2,
    )
    plane = plane_of(source, tmp_path)
    slices = (RangeSlice(0, 0, 5), RangeSlice(1, 0, 5))
    inputs = (Input("rows", slices, msgspec.Raw(b"1")),)

    def read_by(step: int, *workers: int) -> Plan:
        placement = equal_shares(["by-name"], BINS, 2, ())
        readers = Assignment("rows", step, workers, source=True)
        return Plan(step, 0, step, "code", inputs, (*placement, readers), 2)

    plane.query(read_by(4, 0, 1))
    assert plane.prepare(read_by(5, 0, 1))
    query = plane.query(read_by(5, 1, 1))
    assert query is not None
    assert [step for step, _ in made.steps] == [4, 5, 5]
    ((blanks, orders),) = query.orders
    assert [order.parts for order in orders] == [
        tuple(ReadPart(part.partition, part) for part in slices)
    ]
    assert len(blanks) == 1


def test_what_cannot_be_prepared_is_tried_once_and_fails_when_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = ab.FileSource(tmp_path, format="json", schema="name string, value bigint")
    plane = plane_of(source, tmp_path)
    gone = (FileSlice(str(tmp_path / "gone.json"), 1, 1),)
    missing = msgspec.structs.replace(plan(5), inputs=(Input("rows", gone, msgspec.Raw(b"1")),))
    plane.query(plan(4))
    assert plane.prepare(missing)
    assert not plane.prepare(missing)
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        plane.query(missing)


def test_where_preparing_is_in_vain_it_is_done_less_and_less(plane: SparkPlane) -> None:
    tried = []
    for step in range(1, 31):
        plane.query(plan(step))
        if plane.prepare(plan(step + 1)):
            tried.append(step + 1)
            plane.query(plan(step + 1, rows=3))
    assert tried == [2, 4, 8, 16]
    plane.query(plan(31))
    assert plane.prepare(plan(32))
    plane.query(plan(32))
    assert plane.prepare(plan(33)), "once it was of use it is done again"


def test_a_program_that_calls_the_users_code_to_make_a_query_is_not_prepared(
    spark: SparkSession, tmp_path: Path
) -> None:
    def doubled(df: DataFrame) -> DataFrame:
        return df.selectExpr("name", "value * 2 as value")

    made = ab.Dataflow("transformed")
    source = ab.ScriptedSource("name string, value bigint", [ab.EOF])
    made.source("rows", source).transform("doubled", doubled).sink("out", ab.MemorySink())
    session = open_session(None)
    program = Program(validate(made.graph(), SparkAnalyzer(session)), BINS)
    sources = SparkSources(session, tmp_path)
    assert not SparkPlane(session, program, tmp_path, "code", sources).prepare(plan(1))


def exchanges(query: StepQuery) -> list[Any]:
    """The exchanges that a query would run."""
    found, waiting = [], [query.frame._jdf.queryExecution().toRdd()]
    while waiting:
        before = waiting.pop().dependencies()
        for dependency in [before.apply(place) for place in range(before.size())]:
            if dependency.getClass().getSimpleName() == "ShuffleDependency":
                found.append(dependency)
            waiting.append(dependency.rdd())
    return found


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_query_is_prepared_with_the_settings_of_its_session(
    plane: SparkPlane, before: int
) -> None:
    """Two attempts of a task differ: with checksums of rows Spark would fail the step."""
    for step in range(before + 1):
        plane.query(plan(step))
    thread = threading.Thread(target=plane.prepare, args=(plan(before + 1),))
    thread.start()
    thread.join()
    query = plane.query(plan(before + 1))
    assert query is not None
    (exchange,) = exchanges(query)
    assert len(exchange.rowBasedChecksums()) == 0
