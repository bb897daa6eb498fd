"""A plan that was made once serves steps over other files, and keeps nothing of what they ran."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, orc, parquet
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.spark.session import open_session
from anabranch.spark.step.late_rows import AT, PAYLOAD, Blanks
from anabranch.spark.step.plan_cache import KEPT_PLANS, PlanCache, PlanInputs, ReusablePlan
from anabranch.spark.step.step_frame import StepFrame
from tests.spark.running import completed, eventually, state_of, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "name string, value bigint"
COLUMNS = pa.schema([("name", pa.string()), ("value", pa.int64())])
PLACE = (0, 1)


@pytest.fixture
def session() -> SparkSession:
    return open_session(None)


class Query:
    """Files and blanks behind an exchange, handed to Python: what a step is made of."""

    def __init__(self, session: SparkSession, directory: Path, format: str = "json") -> None:
        self.session = session
        self.directory = directory
        self.format = format
        self.blanks = Blanks(session, 2)
        self.made = 0

    def write(self, number: int, values: list[int]) -> None:
        """Two files, one of which may be empty."""
        path = self.directory / str(number)
        path.mkdir(exist_ok=True)
        for place, some in enumerate((values[:3], values[3:])):
            table = pa.table(
                {"name": [f"n{value % 3}" for value in some], "value": some}, schema=COLUMNS
            )
            _write(table, path / f"{place}.{self.format}")

    def found(self, *numbers: int) -> DataFrame:
        paths = [str(self.directory / str(number)) for number in numbers]
        return self.session.read.format(self.format).schema(SCHEMA).load(paths)

    def given(self, found: DataFrame, *partitions: int) -> PlanInputs:
        java: Any = found._jdf.logicalPlan()
        return PlanInputs({PLACE: java.relation().location()}, {}, partitions or (2,))

    def frame(self, found: DataFrame, partitions: int = 2) -> DataFrame:
        self.made += 1
        rows = found.where("value >= 0").selectExpr("name", "value", "_metadata.file_path as file")
        report = self.blanks.frame.selectExpr(
            f"cast({PAYLOAD} as string)", f"cast({AT} as bigint)", "''"
        )
        both = rows.union(report).repartitionById(partitions, _part(partitions))
        return both.mapInArrow(_seen, "name string, value bigint")

    def over(self, plans: PlanCache, *numbers: int) -> list[tuple[str, int]]:
        return sorted((row.name, row.value) for row in self.run(plans, 2, *numbers).collect())

    def run(self, plans: PlanCache, partitions: int, *numbers: int) -> DataFrame:
        found = self.found(*numbers)
        given = self.given(found, partitions)
        planned = plans.frame("shape", given, lambda: self.frame(found, partitions))
        assert planned is not None
        return planned.frame


def _write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        case ".csv":
            csv.write_csv(table, path, csv.WriteOptions(include_header=False))
        case ".parquet":
            parquet.write_table(table, path)
        case ".orc":
            orc.write_table(table, path)


def _part(partitions: int) -> Any:
    from pyspark.sql import functions  # noqa: PLC0415  (columns need a running Spark)

    return functions.expr(f"cast(value % {partitions} as int)")


def _seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["name", "value"])


def expected(values: list[int], report: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted([(f"n{value % 3}", value) for value in values] + report)


@pytest.mark.parametrize("format", ["json", "parquet", "csv", "orc"])
def test_a_plan_serves_other_files_and_what_is_told_later(
    session: SparkSession, tmp_path: Path, format: str
) -> None:
    query, plans = Query(session, tmp_path, format), PlanCache()
    for number in range(5):
        values = list(range(number * 100, number * 100 + 7 + number))
        query.write(number, values)
        query.blanks.fill([(0, b"a%d" % number), (1, b"b%d" % number)])
        report = [(f"a{number}", 0), (f"b{number}", 1)]
        assert query.over(plans, number) == expected(values, report)
    assert query.made == 2, "from the third time on nothing is planned"


def test_the_same_files_are_read_again_and_with_what_is_told_now(
    session: SparkSession, tmp_path: Path
) -> None:
    query, plans = Query(session, tmp_path), PlanCache()
    query.write(1, [1, 2, 3])
    query.write(2, [4, 5])
    for report in (b"x", b"y", b"z", b"z"):
        query.blanks.fill([(0, report), (1, report)])
        both = [(report.decode(), 0), (report.decode(), 1)]
        assert query.over(plans, 1, 2) == expected([1, 2, 3, 4, 5], both)
    query.write(2, [6])
    assert query.over(plans, 1, 2) == expected([1, 2, 3, 6], [("z", 0), ("z", 1)])


def test_nothing_of_a_run_is_kept_with_the_plan(session: SparkSession, tmp_path: Path) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    found = query.found(1)
    planned = ReusablePlan.of(query.frame(found), query.given(found))
    assert planned is not None
    shuffles = {_shuffle(planned.over(query.given(found))) for _ in range(3)}
    assert len(shuffles) == 3


def _shuffle(frame: DataFrame) -> int:
    waiting: list[Any] = [frame._jdf.queryExecution().toRdd()]
    while waiting:
        before = waiting.pop().dependencies()
        for dependency in [before.apply(place) for place in range(before.size())]:
            if dependency.getClass().getSimpleName() == "ShuffleDependency":
                return int(dependency.shuffleId())
            waiting.append(dependency.rdd())
    raise AssertionError("there is no exchange")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda df: df.where("value > (select max(id) from range(3))"), id="subquery"),
        pytest.param(lambda df: df.join(df.sparkSession.range(3), df.value == 1), id="join"),
        pytest.param(lambda df: df.distinct(), id="aggregate"),
        pytest.param(lambda df: df.sortWithinPartitions("value"), id="sort"),
    ],
)
def test_a_plan_that_is_not_known_through_and_through_is_not_kept(
    session: SparkSession, tmp_path: Path, other: Any
) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    found = query.found(1)
    assert ReusablePlan.of(other(found), query.given(found)) is None


@pytest.mark.parametrize("partitions", [(), (3,)])
def test_an_exchange_that_nobody_told_of_is_not_kept(
    session: SparkSession, tmp_path: Path, partitions: tuple[int, ...]
) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    found = query.found(1)
    given = replace(query.given(found), partitions=partitions)
    assert ReusablePlan.of(query.frame(found), given) is None
    assert ReusablePlan.of(found.repartition(3), query.given(found, 3)) is None


def test_a_plan_serves_any_number_of_partitions_but_one(
    session: SparkSession, tmp_path: Path
) -> None:
    query, plans = Query(session, tmp_path), PlanCache()
    query.write(1, [1, 2, 3, 4, 5])
    query.blanks.fill([(0, b"a"), (1, b"b")])
    report = [("a", 0), ("b", 1)]
    for partitions in (2, 2, 4, 3, 7, 2):
        frame = query.run(plans, partitions, 1)
        assert frame.rdd.getNumPartitions() == partitions
        assert sorted(map(tuple, frame.collect())) == expected([1, 2, 3, 4, 5], report)
    assert query.made == 2
    for _ in range(3):
        assert query.run(plans, 1, 1).rdd.getNumPartitions() == 1
    assert query.made == 4, "Spark plans one partition in a way of its own"
    assert query.run(plans, 5, 1).rdd.getNumPartitions() == 5
    assert query.made == 4


def test_files_that_nobody_told_of_are_not_exchanged(session: SparkSession, tmp_path: Path) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    assert ReusablePlan.of(query.frame(query.found(1)), query.given(query.found(1))) is None


def test_where_spark_says_nothing_of_its_files_every_query_is_planned(
    session: SparkSession, tmp_path: Path
) -> None:
    query, plans = Query(session, tmp_path), PlanCache()
    query.write(1, [1])
    for _ in range(4):
        assert plans.frame("shape", None, lambda: query.frame(query.found(1))) is not None
    assert query.made == 4


def test_a_bounded_number_of_plans_is_kept(session: SparkSession, tmp_path: Path) -> None:
    query, plans = Query(session, tmp_path), PlanCache()
    query.write(1, [1])
    found = query.found(1)

    def ask(shape: int) -> None:
        plans.frame(shape, query.given(found), lambda: query.frame(found))

    for _ in range(3):
        ask(0)
    assert query.made == 2
    for shape in range(1, KEPT_PLANS + 1):
        ask(shape)
    ask(0)
    assert query.made == 2 + KEPT_PLANS + 1


@pytest.mark.parametrize("legacy", ["avro,csv,json,kafka,orc,parquet,text", ""])
def test_steps_over_files_of_both_of_sparks_ways_of_reading(tmp_path: Path, legacy: str) -> None:
    for step in range(6):
        write_json(tmp_path / "in" / f"{step}.json", [{"name": f"n{step % 2}", "value": 10**step}])
    flow = ab.Dataflow("files")
    source = ab.FileSource(
        tmp_path / "in", format="json", schema=SCHEMA, watch=False, max_files_per_step=1
    )
    flow.source("rows", source).key_distribute("by-name", "name").aggregate(
        "total", t="sum(value)"
    ).sink("out", ab.MemorySink())
    conf = {"spark.sql.sources.useV1SourceList": legacy}
    pipeline = completed(flow, tmp_path / "state", spark_conf=conf)
    assert state_of(pipeline, "total") == {"n0": 10101, "n1": 101010}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many queries of steps Spark has planned, of those with input and of those without."""
    found: Counter[bool] = Counter()
    build = StepFrame.build

    def counting(self: StepFrame) -> DataFrame | None:
        found[any(given.slices for given in self.plan.inputs)] += 1
        return build(self)

    monkeypatch.setattr(StepFrame, "build", counting)
    return found


def two_regions(source: Any) -> ab.Dataflow:
    flow = ab.Dataflow("moving")
    totals = flow.source("rows", source).key_distribute("by-name", "name")
    sums = totals.aggregate("total", t="sum(value)")
    sums.key_distribute("by-total", "t").aggregate("seen", n="count(*)").sink(
        "out", ab.MemorySink()
    )
    return flow


def rescaled(pipeline: ab.Pipeline, step: Callable[[], None]) -> None:
    """From two workers to four and to three, with steps between."""
    for _ in range(5):
        step()
    for number, workers in enumerate((4, 3), start=1):
        pipeline.scale(workers)
        while len(pipeline.scale_history()) < number:
            step()
        assert {len(set(region.bins)) for region in pipeline.status().regions} == {workers}
    step()


def test_a_rescale_plans_nothing_anew(tmp_path: Path, planned: Counter[bool]) -> None:
    source = ab.FileSource(tmp_path / "in", format="json", schema=SCHEMA, max_files_per_step=1)
    (tmp_path / "in").mkdir()
    pipeline = ab.run(two_regions(source), directory=tmp_path / "state", workers=2, bins=8)
    written = 0

    def step() -> None:
        nonlocal written
        rows = [{"name": f"n{i}", "value": i} for i in range(20)]
        write_json(tmp_path / "in" / f"{written}.json", rows)
        written += 1
        eventually(lambda: pipeline.status().rows == 20 * written)

    try:
        rescaled(pipeline, step)
    finally:
        pipeline.shutdown()
    assert planned[True] == 2
    assert planned[False] <= 2, "steps without input have a plan of their own"
    assert state_of(pipeline, "total") == {f"n{i}": i * written for i in range(20)}


def test_a_rescale_of_what_python_reads_plans_nothing_anew(
    tmp_path: Path, planned: Counter[bool]
) -> None:
    """The partitions of the source move, too: there are two read tasks, then four, then three."""

    def rows(partition: int, start: int, end: int) -> dict[str, list[Any]]:
        return {"name": [f"n{partition}"] * (end - start), "value": [1] * (end - start)}

    source = ab.GeneratorSource(rows, SCHEMA, rows_per_step=20, partitions=8)
    pipeline = ab.run(two_regions(source), directory=tmp_path, workers=2, bins=8)

    def step() -> None:
        before = pipeline.status().step
        eventually(lambda: pipeline.status().step > before)

    try:
        rescaled(pipeline, step)
    finally:
        status = pipeline.shutdown()
    assert planned[True] == 2
    totals = state_of(pipeline, "total")
    assert sorted(totals) == [f"n{partition}" for partition in range(8)]
    assert sum(totals.values()) == status.rows


def test_a_plan_serves_other_rows_in_other_tasks(session: SparkSession) -> None:
    def over(blanks: Blanks) -> DataFrame:
        return blanks.frame.selectExpr(AT, f"cast({PAYLOAD} as string) as text")

    few, many = Blanks(session, 2, tasks=2), Blanks(session, 5, tasks=5)
    planned = ReusablePlan.of(over(few), PlanInputs(rows={PLACE: few.rows}))
    assert planned is not None
    for blanks in (many, few, many):
        report = [(number, f"order {number}") for number in range(len(blanks))]
        blanks.fill([(number, text.encode()) for number, text in report])
        frame = planned.over(PlanInputs(rows={PLACE: blanks.rows}))
        assert frame.rdd.getNumPartitions() == len(blanks)
        assert sorted(map(tuple, frame.collect())) == report
