"""The SQL that runs without Spark, beside Spark: the same types, the same rows."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.dataflow.types.schema import parse_schema, to_ddl
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.session import open_session
from anabranch.testing.plane.plain_columns import PlainColumns
from anabranch.testing.plane.plain_sql import plain_condition, plain_value

pytestmark = pytest.mark.spark

DDL = "n bigint, m int, t string, b boolean"
ROWS = list(
    itertools.product(
        (None, -1, 2, 2**40), (None, 2), (None, "", "a", "B", "é"), (None, True, False)
    )
)

VALUES = ("n", "M", "`t`", "7", "-7", "2147483647", "2147483648", "-2147483648", "true", "'x y'")
CONDITIONS = (
    *("n > 1", "n <= m", "m = n", "n <> -1", "2 != m", "n == 1099511627776", "m < 3000000000"),
    *(
        "t = 'a'",
        "t < 'a'",
        "t >= 'B'",
        "'é' > t",
        "t <> ''",
        "b",
        "not b",
        "b = true",
        "false <> b",
    ),
    *("n is null", "t is not null", "b is null or n = 2", "b and n > 0", "b or n > 0"),
    *(
        "not b and n > 0 or t = 'a'",
        "not (b and n > 0 or t = 'a')",
        "not not b",
        "n > 0 and b or m = 2",
    ),
    *("b = (true)", "(n > 1) = b", "b is true", "n = 1.0", "t = 1", "n in (1)", "b < true"),
)

SCHEMA = parse_schema(DDL)
TABLE = pa.Table.from_arrays(
    [
        pa.array(column, field.type)
        for column, field in zip(zip(*ROWS, strict=True), SCHEMA, strict=True)
    ],
    schema=SCHEMA,
)


@pytest.fixture(scope="module")
def spark(_started_spark: SparkSession) -> SparkSession:
    return open_session(None)


@pytest.mark.parametrize("text", VALUES)
def test_a_value_has_the_type_and_the_value_that_it_has_in_spark(
    text: str, spark: SparkSession
) -> None:
    there, here = (
        analyzer.columns(SCHEMA, [("given", text)])
        for analyzer in (SparkAnalyzer(spark), PlainColumns())
    )
    assert not isinstance(there, str)
    assert not isinstance(here, str)
    assert to_ddl(here) == to_ddl(there)
    found = plain_value(SCHEMA, text).of(TABLE).to_pylist()
    rows = spark.createDataFrame(ROWS, DDL).selectExpr(f"{text} as given").collect()
    assert found == [row.given for row in rows]


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_is_refused_or_holds_for_the_same_rows(text: str, spark: SparkSession) -> None:
    refused = PlainColumns().condition(SCHEMA, text)
    if refused is not None:
        assert "without Spark" in refused
        return
    found = plain_condition(SCHEMA, text).of(TABLE).to_pylist()
    rows = spark.createDataFrame(ROWS, DDL).selectExpr(f"({text}) as given").collect()
    assert found == [row.given for row in rows]


def test_most_of_these_conditions_are_understood() -> None:
    refused = [text for text in CONDITIONS if PlainColumns().condition(SCHEMA, text) is not None]
    assert refused == list(CONDITIONS[-7:])
