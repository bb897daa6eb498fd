"""What Catalyst says of the functions of ``transform``, before anything runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.schema import parse_schema, to_ddl
from anabranch.plan.transform_sql import content_hash
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.session import open_session
from anabranch.spark.step.actions import ActionRefused, refusing_actions
from tests.spark.running import jobs

pytestmark = pytest.mark.spark

SCHEMA = parse_schema("id int not null, name string collate UTF8_LCASE, tags array<string>")


@pytest.fixture(scope="module")
def analyzer(_started_spark: SparkSession) -> SparkAnalyzer:
    return SparkAnalyzer(open_session(None))


def asked(
    analyzer: SparkAnalyzer, function: Any, *, ordered: bool = True, timed: bool = False
) -> Transformed | str:
    return analyzer.transform(SCHEMA, function, ordered=ordered, timed=timed)


@pytest.mark.parametrize(
    ("function", "ddl", "ordered"),
    [
        (lambda df: df, to_ddl(SCHEMA), True),
        (lambda df: df.drop("_ord"), to_ddl(SCHEMA), False),
        (lambda df: df.select("_ORD", "id"), "id int not null", True),
        (lambda df: df.select(F.explode("tags").alias("tag"), "_ord"), "tag string", True),
        (
            lambda df: df.groupBy("id").agg(F.min("_ord").alias("_ord"), F.count("*").alias("n")),
            "id int not null, n bigint not null",
            True,
        ),
        (lambda df: df.groupBy("id").count(), "id int not null, count bigint not null", False),
        (lambda df: df.dropDuplicates(), to_ddl(SCHEMA), True),
        (
            lambda df: df.groupBy("name").agg(F.sort_array(F.collect_list("id")).alias("ids")),
            "name string collate UTF8_LCASE, ids array<int> not null",
            False,
        ),
    ],
)
def test_columns_and_order_are_those_of_what_it_returns(
    analyzer: SparkAnalyzer, function: Any, ddl: str, ordered: bool
) -> None:
    answer = asked(analyzer, function)
    assert isinstance(answer, Transformed)
    assert (to_ddl(answer.columns), answer.ordered) == (ddl, ordered)


def test_without_an_order_before_it_there_is_no_ord(analyzer: SparkAnalyzer) -> None:
    seen: list[list[str]] = []

    def looking(df: Any) -> Any:
        seen.append(df.columns)
        return df

    assert asked(analyzer, looking, ordered=False) == Transformed(SCHEMA, False)
    assert isinstance(asked(analyzer, looking), Transformed)
    assert seen == [["id", "name", "tags"], ["id", "name", "tags", "_ord"]]


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (lambda df: df, Transformed(SCHEMA, True, True)),
        (lambda df: df.drop("_ord"), Transformed(SCHEMA, False, True)),
        (lambda df: df.drop("_time"), Transformed(SCHEMA, True, False)),
        (lambda df: df.withColumn("_time", F.lit(1)), "it changed the column _time"),
        (lambda df: df.select("*", F.col("_time")), "it changed the column _time"),
    ],
)
def test_times_are_kept_if_they_are_returned(
    analyzer: SparkAnalyzer, function: Any, answer: Any
) -> None:
    assert asked(analyzer, function, timed=True) == answer


def test_without_times_a_column_of_that_name_is_the_users_own(analyzer: SparkAnalyzer) -> None:
    answer = asked(analyzer, lambda df: df.select("_ord", F.lit(1).alias("_time")))
    assert isinstance(answer, Transformed)
    assert (to_ddl(answer.columns), answer.timed) == ("_time int not null", False)


def raising(df: Any) -> Any:
    raise ValueError("no\nway")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raising, "it raised ValueError: no way"),
        (lambda df: df.select("nam"), "it raised AnalysisException: A column"),
        (lambda df: None, "it returned NoneType instead of a DataFrame"),
        (lambda df: df.select("_ord"), "it returned no columns"),
        (lambda df: df.withColumn("_ord", F.lit(1)), "it changed the column _ord"),
        (lambda df: df.withColumn("x", F.rand()), "it is not deterministic"),
        (lambda df: df.where(F.rand() > 0.5).select("id"), "it is not deterministic"),
        (lambda df: df.withColumn("x", F.expr("uuid()")), "it is not deterministic"),
        (lambda df: df.withColumn("x", F.current_timestamp()), "it uses the current time"),
        (lambda df: df.limit(3), "limit takes whatever rows come first"),
        (lambda df: df.join(df.select("id").limit(1), "id"), "limit takes"),
        (lambda df: df.sample(0.5, seed=1), "sample takes"),
        (lambda df: df.dropDuplicates(["id"]), "dropDuplicates of some columns"),
        (lambda df: df.groupBy("id").agg(F.first("name")), "first takes whatever row"),
        (lambda df: df.sparkSession.newSession().range(3), "of another session"),
        (lambda df: df.sparkSession.readStream.format("rate").load(), "a streaming DataFrame"),
        (
            lambda df: df.select(F.expr("make_interval(1)").alias("i")),
            'column "i" is interval, which rows cannot carry',
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(
    analyzer: SparkAnalyzer, function: Any, words: str
) -> None:
    answer = asked(analyzer, function)
    assert isinstance(answer, str)
    assert words in answer
    assert "\n" not in answer


def test_no_job_is_started(analyzer: SparkAnalyzer, spark: SparkSession) -> None:
    before = jobs(spark)
    assert isinstance(asked(analyzer, lambda df: df.groupBy("id").count()), Transformed)
    assert jobs(spark) == before


def test_rows_that_differ_have_different_content_hashes(spark: SparkSession) -> None:
    """Each pair is one that Spark's hash of the columns cannot tell apart."""
    types = {
        **{"a": "string", "b": "string", "d": "double", "l": "array<string>"},
        **{"m": "map<string,int>", "s": "struct<t:timestamp,x:double>"},
        "c": "string collate UTF8_LCASE",
    }
    schema = parse_schema(", ".join(f"{name} {kind}" for name, kind in types.items()))
    rows = [
        {"a": "'x'"},
        {"b": "'x'"},
        {"d": "0.0D"},
        {"d": "-0.0D"},
        {"l": "array('x', null)"},
        {"l": "array(null, 'x')"},
        {"m": "map('x', 1)"},
        {"m": "map('x', null)"},
        {"s": "named_struct('t', timestamp'2020-01-01 00:00:00.123456', 'x', 1D)"},
        {"s": "named_struct('t', timestamp'2020-01-01 00:00:00.123457', 'x', 1D)"},
        {"c": "'x'"},
        {"c": "'X'"},
        {},
    ]
    selects = [
        ", ".join(
            f"cast({row.get(name, 'null')} as {kind}) as {name}" for name, kind in types.items()
        )
        for row in rows
    ]
    table = spark.sql(" union all ".join(f"select {each}" for each in selects))
    hashes = [row[0] for row in table.selectExpr(content_hash(schema)).collect()]
    assert len(set(hashes)) == len(rows)
    plain = [row[0] for row in table.selectExpr("xxhash64(a, b, d, l, s, c)").collect()]
    assert len(set(plain)) < len(rows)


def test_the_active_session_stays_as_it_was(analyzer: SparkAnalyzer, spark: SparkSession) -> None:
    """``createDataFrame`` in a function makes its session the active one."""

    def joined(df: Any) -> Any:
        return df.join(df.sparkSession.createDataFrame([(1,)], "id int"), "id")

    def session() -> Any:
        active = SparkSession.getActiveSession()
        assert active is not None
        return active._jsparkSession

    before = session()
    assert isinstance(asked(analyzer, joined), Transformed)
    assert session().equals(before)


def pivoted(df: Any) -> Any:
    return df.groupBy("id").pivot("name").count()


ACTIONS = [
    (lambda df: df.limit(df.count()), "count()"),
    (lambda df: df.where("id > 0") if df.where("id > 1").collect() else df, "collect()"),
    (lambda df: df.withColumn("n", F.lit(df.groupBy("id").count().first()["count"])), "first()"),
    (lambda df: df.sparkSession.createDataFrame(df.toPandas()), "toPandas()"),
    (lambda df: df.sparkSession.createDataFrame(df.rdd, df.schema), "rdd"),
    (lambda df: df.write.mode("append").parquet("somewhere") or df, "write"),
    (lambda df: df if df.isEmpty() else df.limit(1), "isEmpty()"),
    (lambda df: df.show() or df, "show()"),
    (lambda df: df.limit(int(df.stat.corr("id", "id"))), "corr()"),
    (pivoted, "pivot() without values"),
]


@pytest.mark.parametrize(("function", "name"), ACTIONS, ids=[name for _, name in ACTIONS])
def test_an_action_is_refused_by_its_name(
    analyzer: SparkAnalyzer, spark: SparkSession, function: Any, name: str
) -> None:
    before = jobs(spark)
    answer = asked(analyzer, function)
    assert isinstance(answer, str)
    assert answer.startswith(f"it called an action: {name} computes rows at once; ")
    assert jobs(spark) == before
    # Outside transforms everything is as it was, in this thread and in others.
    assert spark.range(3).count() == 3
    assert spark.range(2).rdd.map(tuple).collect() == [(0,), (1,)]


def test_actions_of_other_threads_are_their_own(spark: SparkSession) -> None:
    with refusing_actions(), ThreadPoolExecutor(1) as other:
        with pytest.raises(ActionRefused):
            spark.range(3).count()
        assert other.submit(lambda: spark.range(3).count()).result() == 3
