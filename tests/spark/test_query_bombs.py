"""One query does not end all queries: whatever became of its thread, the next one is answered."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ExpressionTooLarge, QueryFailed, QueryTimeout
from anabranch.spark.queries.query import SparkQueries
from anabranch.task.queries import LIMIT_BYTES, QueryLimits
from anabranch.task.state_reader import Snapshot
from tests.spark import query_bombs

pytestmark = pytest.mark.spark

NOTHING = Snapshot(0, 0, 16, (), {})


def ask(queries: SparkQueries, sql: str, seconds: float = 60.0) -> pa.Table:
    return queries.run(sql, lambda: NOTHING, QueryLimits(10, LIMIT_BYTES, seconds))


def test_the_place_of_a_query_that_nothing_can_interrupt_is_given_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    queries = SparkQueries(spark, tmp_path, grace=0.2)
    with pytest.raises(QueryTimeout):
        ask(queries, query_bombs.STUCK, seconds=2)
    assert ask(queries, "select 1 as one").to_pylist() == [{"one": 1}]


def test_what_runs_out_of_memory_in_the_driver_fails_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    queries = SparkQueries(spark, tmp_path)
    with pytest.raises(QueryFailed, match="OutOfMemoryError"):
        ask(queries, query_bombs.IN_THE_DRIVER)
    with pytest.raises(ExpressionTooLarge):
        ask(queries, query_bombs.READ_OFF_THE_PLAN)
    assert ask(queries, "select 1 as one").to_pylist() == [{"one": 1}]


def test_a_query_without_rows_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    sql = "select 1 as n, 'a' as n, timestamp'2000-01-01' as at, 1.5 as d, array(1) as l"
    queries = SparkQueries(spark, tmp_path)
    some, none = ask(queries, sql), ask(queries, f"{sql} where 1 = 0")
    assert none.schema.equals(some.schema)
    assert (some.num_rows, none.num_rows) == (1, 0)


@pytest.mark.timeout(600)
def test_against_a_pipeline_in_processes_of_its_own(tmp_path: Path) -> None:
    query_bombs.main(tmp_path / "site", rounds=1)
