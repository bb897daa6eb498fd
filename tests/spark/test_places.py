"""Where Spark looks for files, and in which pool it works: wherever the pipeline lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.run import start_pipeline
from tests.spark.running import completed, write_json

pytestmark = pytest.mark.spark

AWKWARD = "a b=é%20,+(1)"
Opened: TypeAlias = Callable[[Path], ab.FileSource | ab.StructuredStreamSource]


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """A cluster whose paths mean another file system unless they say otherwise."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://nowhere.invalid:1")
    yield
    hadoop.set("fs.defaultFS", before)


def streamed(place: Path) -> ab.StructuredStreamSource:
    def make(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema("n bigint").json(f"file://{place}")

    return ab.StructuredStreamSource(make, watch=False)


def files(place: Path) -> ab.FileSource:
    return ab.FileSource(place, "json", "n bigint", watch=False)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("source", [files, streamed])
def test_a_pipeline_may_lie_in_a_directory_of_any_name(tmp_path: Path, source: Opened) -> None:
    write_json(tmp_path / AWKWARD / "in" / "1.json", [{"n": n} for n in range(3)])
    check_numbers(tmp_path / AWKWARD, source)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("source", [files, streamed])
def test_files_are_here_where_a_cluster_has_another_file_system(
    tmp_path: Path, source: Opened
) -> None:
    write_json(tmp_path / "in" / "1.json", [{"n": n} for n in range(3)])
    check_numbers(tmp_path, source)


def check_numbers(place: Path, source: Opened) -> None:
    """Rows come in, and go out to files that Spark writes and to a function."""
    given: list[int] = []
    flow = ab.Dataflow("numbers")
    numbers = flow.source("numbers", source(place / "in"))
    numbers.sink("csv", ab.FileSink(place / "out", "csv"))
    numbers.sink("call", ab.CallbackSink(lambda df, step: given.extend(r.n for r in df.collect())))
    completed(flow, place / "state")
    written = "".join(path.read_text() for path in (place / "out").glob("step-*"))
    assert sorted(map(int, written.split())) == [0, 1, 2]
    assert sorted(given) == [0, 1, 2]
    assert sorted(path.name for path in place.iterdir()) == ["in", "out", "state"]


def test_steps_stay_in_their_pool_when_state_is_opened_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    pools: dict[int, str | None] = {}
    flow = ab.Dataflow("pools")
    source = ab.ScriptedSource("n bigint", [[(n,)] for n in range(200)])
    flow.source("numbers", source).sink("csv", ab.FileSink(tmp_path / "out", "csv"))

    def reached(point: str, step: int) -> None:
        if point == "ran":
            pools[step] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")

    pipeline = start_pipeline(flow, tmp_path / "state", ab.Settings(), reached=reached)
    while pipeline.status().step < 2:
        pipeline.wait(0.05)
    pipeline.checkpoint()
    pipeline.load(pipeline.status().checkpoints[-1].step)
    pools.clear()
    while not pools:
        pipeline.wait(0.05)
    pipeline.shutdown()
    assert set(pools.values()) == {"steps"}
