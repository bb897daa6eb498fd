"""Whether Spark adds up the bytes of what it hands to Python, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.dataflow.validate import validate
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.session import open_session
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.step_query import StepQueries
from anabranch.task.program import Program

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
LIFTED = 2**31 - 1


def limit_with(session: SparkSession, schema: str, directory: Path) -> int:
    """The limit of a pipeline's session for rows of such columns, a key k and a value v."""
    flow = ab.Dataflow("limits")
    region = flow.source("rows", ab.ScriptedSource(schema, [ab.EOF])).key_distribute("by-key", "k")
    region.aggregate("least", least="min(v)").sink("out", ab.MemorySink())
    program = Program(validate(flow.graph(), SparkAnalyzer(session)), 8)
    StepQueries(session, program, directory, "code", SparkSources(session, directory), None)
    return int(str(session.conf.get(LIMIT)).removesuffix("b"))


@pytest.mark.parametrize(
    ("schema", "lifted"),
    [
        ("k bigint, v int", True),
        ("k date, v decimal(38, 4)", True),
        ("k boolean, v timestamp", True),
        ("k string, v int", False),
        ("k bigint, v binary", False),
        ("k bigint, v string", False),
    ],
)
def test_rows_of_fixed_width_are_bounded_by_their_number_alone(
    schema: str, lifted: bool, tmp_path: Path
) -> None:
    assert (limit_with(open_session(None), schema, tmp_path) == LIFTED) == lifted


def test_a_limit_of_the_users_stays(tmp_path: Path) -> None:
    session = open_session(None, {LIMIT: "1000000"})
    assert limit_with(session, "k bigint, v int", tmp_path) == 1_000_000
