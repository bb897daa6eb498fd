"""DataFrames that are put together with few calls are those that pyspark would have made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import DataFrame, SparkSession, functions

from anabranch.spark.step.assembly import Assembly

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SUM = pa.schema([pa.field("total", pa.int64()), pa.field("note", pa.string())])


def sums(note: str, arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in arriving:
        total = sum(batch.column(0).to_pylist()) + sum(batch.column(1).to_pylist())
        yield pa.record_batch([[total], [note[:3]]], schema=SUM)


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1).selectExpr("id", "id * 2 as `a b`")


def plan(df: DataFrame) -> str:
    """The analysed plan, without the name of the function and numbers that are always new."""
    made: Any = df
    text = re.sub(r"#\d+L?", "#", made._jdf.queryExecution().analyzed().toString())
    return re.sub(r"(?<=MapInArrow )\w+", "task", text)


def collected(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.collect())


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_mapped_rows_are_those_of_map_in_arrow(spark: SparkSession, size: int) -> None:
    # A function that is too large to go with every task goes as pyspark would send it.
    task = partial(sums, "x" * size)
    made = Assembly(spark).map_in_arrow(rows(spark), ["id", "`a b`"], task, SUM)
    asked = rows(spark).mapInArrow(task, "total bigint, note string")
    assert collected(made) == collected(asked) == [(135, "xxx")]
    assert made.schema == asked.schema
    assert plan(made) == plan(asked)


def test_a_function_is_sent_anew_every_time(spark: SparkSession) -> None:
    assembly = Assembly(spark)
    for number in range(3):
        made = assembly.map_in_arrow(rows(spark), ["id", "`a b`"], partial(sums, f"n{number}"), SUM)
        assert collected(made) == [(135, f"n{number}")]


def test_a_view_shows_what_it_was_given_last(spark: SparkSession) -> None:
    spark = spark.newSession()
    assembly = Assembly(spark)
    for end in (3, 5, 4):
        assembly.view(spark.range(end), "numbers_of_a_view")
        asked = assembly.query("select count(*) from numbers_of_a_view")
        assert collected(asked) == [(end,)]
    # A query that was made before keeps what it saw.
    assembly.view(spark.range(9), "numbers_of_a_view")
    assert collected(asked) == [(4,)]


def test_rows_are_in_the_partition_that_they_name(spark: SparkSession) -> None:
    named = spark.range(0, 20, 1, 4).selectExpr("id", "cast(id % 3 as int) as at")
    made = Assembly(spark).repartition(named, 3, functions.col("at")._jc)
    found = made.selectExpr("at", "spark_partition_id() as part").distinct()
    assert collected(found) == [(0, 0), (1, 1), (2, 2)]


def test_the_second_step_makes_few_calls(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly = Assembly(spark.newSession())
    at = functions.col("at")._jc
    calls: list[str] = []

    def step() -> DataFrame:
        df = assembly.repartition(
            assembly.query("select id, cast(0 as int) as at from range(4)"), 1, at
        )
        made = assembly.map_in_arrow(df, ["id", "at"], partial(sums, "abc"), SUM)
        assembly.view(made, "few_calls")
        return assembly.query("select total from few_calls")

    assert collected(step()) == [(6,)]
    send = GatewayClient.send_command

    def counted(self: GatewayClient, command: str, *more: Any, **named: Any) -> Any:
        calls.append(command)
        return send(self, command, *more, **named)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    made = step()
    kept = [command for command in calls if not command.startswith("m\n")]  # objects let go
    monkeypatch.undo()
    assert len(kept) < 25
    assert collected(made) == [(6,)]
