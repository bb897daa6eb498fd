"""Tables in a query whose content is written after it was planned."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.session import open_session
from anabranch.spark.step.late_array import LateArray
from anabranch.spark.step.plan_cache import PlanInputs, ReusablePlan

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SIZE = 8


@pytest.fixture
def session() -> SparkSession:
    """A session of a pipeline: with adaptive planning Spark would run what it is asked to plan."""
    return open_session(None)


def routed(session: SparkSession, table: LateArray) -> DataFrame:
    """The numbers below ``SIZE``, each in the partition that the table says."""
    functions: Any = session.sparkContext._jvm.org.apache.spark.sql.functions  # type: ignore[union-attr]
    rows: Any = session.createDataFrame([(n,) for n in range(SIZE)], "n int")
    column = table.column.getItem(functions.col("n"))
    return DataFrame(rows._jdf.repartitionById(4, column), session)


def test_a_planned_query_reads_what_is_written_before_it_runs(session: SparkSession) -> None:
    table = LateArray(session, SIZE)
    queries = [routed(session, table).selectExpr("n", "spark_partition_id() as p") for _ in "ab"]
    for query in queries:
        query._jdf.queryExecution().toRdd()
    for query, values in zip(
        queries, ([0, 0, 1, 1, 2, 2, 3, 3], [3, 0, 1, 1, 1, 0, 0, 0]), strict=True
    ):
        table.write(values)
        found = sorted((row.n, row.p) for row in query.collect())
        assert [p for _, p in found] == values


def test_a_plan_that_is_kept_reads_what_is_written_before_each_run(session: SparkSession) -> None:
    table = LateArray(session, SIZE)
    report = routed(session, table).selectExpr("n", "spark_partition_id() as p")
    planned = ReusablePlan.of(report, PlanInputs(partitions=(4,)))
    assert planned is not None
    for values in ([0] * SIZE, [1] * SIZE, [0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2, 2]):
        table.write(values)
        found = sorted(
            (row.n, row.p) for row in planned.over(PlanInputs(partitions=(4,))).collect()
        )
        assert [p for _, p in found] == values


@pytest.mark.parametrize("size", [1, 2, 64, 65, 256])
def test_a_table_may_have_any_size(session: SparkSession, size: int) -> None:
    table = LateArray(session, size)
    values = [(7 * place + 3) % size for place in range(size)]
    table.write(values)
    numbers: Any = session.range(size)
    functions: Any = session.sparkContext._jvm.org.apache.spark.sql.functions  # type: ignore[union-attr]
    found = numbers._jdf.withColumn("value", table.column.getItem(functions.col("id")))
    assert [row.value for row in DataFrame(found, session).orderBy("id").collect()] == values


def test_every_number_is_written(session: SparkSession) -> None:
    with pytest.raises(AssertionError):
        LateArray(session, SIZE).write([0] * (SIZE - 1))
