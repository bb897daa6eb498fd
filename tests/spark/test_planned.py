"""A plan that was made once serves steps over other files, and keeps nothing of what they ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, orc, parquet
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.spark.blanks import AT, TOLD, Blanks
from anabranch.spark.planned import KEPT_PLANS, Files, Planned, Plans
from anabranch.spark.session import open_session
from tests.spark.running import completed, state_of, write_json

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

    def files(self, found: DataFrame) -> Files:
        java: Any = found._jdf.logicalPlan()
        return {PLACE: java.relation().location()}

    def frame(self, found: DataFrame) -> DataFrame:
        self.made += 1
        rows = found.where("value >= 0").selectExpr("name", "value", "_metadata.file_path as file")
        told = self.blanks.frame.selectExpr(
            f"cast({TOLD} as string)", f"cast({AT} as bigint)", "''"
        )
        both = rows.union(told).repartitionById(2, _part())
        return both.mapInArrow(_seen, "name string, value bigint")

    def over(self, plans: Plans, *numbers: int) -> list[tuple[str, int]]:
        found = self.found(*numbers)
        frame = plans.frame("shape", self.files(found), lambda: self.frame(found))
        assert frame is not None
        return sorted((row.name, row.value) for row in frame.collect())


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


def _part() -> Any:
    from pyspark.sql import functions  # noqa: PLC0415  (columns need a running Spark)

    return functions.expr("cast(value % 2 as int)")


def _seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["name", "value"])


def expected(values: list[int], told: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted([(f"n{value % 3}", value) for value in values] + told)


@pytest.mark.parametrize("format", ["json", "parquet", "csv", "orc"])
def test_a_plan_serves_other_files_and_what_is_told_later(
    session: SparkSession, tmp_path: Path, format: str
) -> None:
    query, plans = Query(session, tmp_path, format), Plans()
    for number in range(5):
        values = list(range(number * 100, number * 100 + 7 + number))
        query.write(number, values)
        query.blanks.fill([(0, b"a%d" % number), (1, b"b%d" % number)])
        told = [(f"a{number}", 0), (f"b{number}", 1)]
        assert query.over(plans, number) == expected(values, told)
    assert query.made == 2, "from the third time on nothing is planned"


def test_the_same_files_are_read_again_and_with_what_is_told_now(
    session: SparkSession, tmp_path: Path
) -> None:
    query, plans = Query(session, tmp_path), Plans()
    query.write(1, [1, 2, 3])
    query.write(2, [4, 5])
    for told in (b"x", b"y", b"z", b"z"):
        query.blanks.fill([(0, told), (1, told)])
        both = [(told.decode(), 0), (told.decode(), 1)]
        assert query.over(plans, 1, 2) == expected([1, 2, 3, 4, 5], both)
    query.write(2, [6])
    assert query.over(plans, 1, 2) == expected([1, 2, 3, 6], [("z", 0), ("z", 1)])


def test_nothing_of_a_run_is_kept_with_the_plan(session: SparkSession, tmp_path: Path) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    found = query.found(1)
    planned = Planned.of(query.frame(found), query.files(found))
    assert planned is not None
    shuffles = {_shuffle(planned.over(query.files(found))) for _ in range(3)}
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
    assert Planned.of(other(found), query.files(found)) is None


def test_files_that_nobody_told_of_are_not_exchanged(session: SparkSession, tmp_path: Path) -> None:
    query = Query(session, tmp_path)
    query.write(1, [1])
    assert Planned.of(query.frame(query.found(1)), query.files(query.found(1))) is None


def test_where_spark_says_nothing_of_its_files_every_query_is_planned(
    session: SparkSession, tmp_path: Path
) -> None:
    query, plans = Query(session, tmp_path), Plans()
    query.write(1, [1])
    for _ in range(4):
        assert plans.frame("shape", None, lambda: query.frame(query.found(1))) is not None
    assert query.made == 4


def test_a_bounded_number_of_plans_is_kept(session: SparkSession, tmp_path: Path) -> None:
    query, plans = Query(session, tmp_path), Plans()
    query.write(1, [1])
    found = query.found(1)

    def ask(shape: int) -> None:
        plans.frame(shape, query.files(found), lambda: query.frame(found))

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
