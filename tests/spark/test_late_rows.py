"""Rows that are filled in after their query was planned."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.session import open_session
from anabranch.spark.step.late_rows import AT, PAYLOAD, Blanks

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def session() -> SparkSession:
    """A session of a pipeline: with adaptive planning Spark would run what it is asked to plan."""
    return open_session(None)


def planned(blanks: Blanks) -> DataFrame:
    """A query over the rows behind an exchange, with its physical plan and its RDDs."""
    made: Any = blanks.frame.selectExpr(f"{AT} + 1 as next", PAYLOAD).repartition(2, "next")
    made._jdf.queryExecution().toRdd()
    found: DataFrame = made
    return found


def report(df: DataFrame) -> list[tuple[int, bytes]]:
    return sorted((row[0], bytes(row[1])) for row in df.collect())


def test_a_planned_query_reads_what_is_written_before_it_runs(session: SparkSession) -> None:
    blanks = Blanks(session, 3)
    first, second = planned(blanks), planned(blanks)
    blanks.fill([(0, b"a"), (1, b""), (2, bytes(range(256)))])
    assert report(first) == [(1, b"a"), (2, b""), (3, bytes(range(256)))]
    blanks.fill([(0, b"b"), (5, b""), (2, b"\0" * 100_000)])
    assert report(second) == [(1, b"b"), (3, b"\0" * 100_000), (6, b"")]


def test_what_is_not_written_again_is_blank(session: SparkSession) -> None:
    blanks = Blanks(session, 3)
    first, second = (planned(blanks).where(f"{PAYLOAD} is not null") for _ in "ab")
    blanks.fill([(0, b"a"), (1, b"b")])
    assert report(first) == [(1, b"a"), (2, b"b")]
    blanks.fill([(4, b"c")])
    assert report(second) == [(5, b"c")]


def test_no_more_rows_are_written_than_there_are_blanks(session: SparkSession) -> None:
    with pytest.raises(ValueError, match="zip"):
        Blanks(session, 1).fill([(0, b"a"), (1, b"b")])
