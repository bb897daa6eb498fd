"""What a query over state may not do, in every place where it could be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import QueryError
from tests.spark.running import completed, jobs, rows_of

pytestmark = pytest.mark.spark

REFLECT = "java_method('java.lang.System', 'getenv', 'HOME')"


@pytest.fixture(scope="module")
def pipeline(
    _started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ab.Pipeline]:
    """A pipeline with state, in a Spark where others have tables, views and functions."""
    spark = _started_spark
    flow = ab.Dataflow("letters")
    source = ab.ScriptedSource("letter string", [[("a",), ("b",), ("a",)], ab.EOF])
    flow.source("in", source).key_distribute("by-letter", "letter").aggregate(
        "counts", n="count(*)"
    ).sink("out", ab.MemorySink())
    spark.sql("create table others using parquet as select 'secret' as word")
    spark.range(3).createOrReplaceTempView("theirs")
    spark.range(3).createOrReplaceGlobalTempView("everybodys")
    spark.sql("create function doubled(x int) returns int return 2 * x")
    spark.udf.register("registered", lambda x: x, "string")
    yield completed(flow, tmp_path_factory.mktemp("letters"))
    spark.sql("drop function doubled")
    spark.sql("drop table others")
    spark.catalog.dropTempView("theirs")
    spark.catalog.dropGlobalTempView("everybodys")


NOT_A_QUERY = [
    "create table t as select 1",
    "create table t (x int) using parquet",
    "create temporary view v as select 1",
    "create view v as select 1",
    "create function f as 'some.Class'",
    "create temporary function f as 'some.Class'",
    "drop view counts",
    "drop table others",
    "alter table others rename to mine",
    "insert into others values ('x')",
    "insert overwrite directory 'somewhere' using json select 1",
    "from counts insert into others select letter",
    "with c as (select 'x' as word) insert into others select word from c",
    "merge into others using counts on false when matched then delete",
    "update others set word = 'x'",
    "delete from others",
    "truncate table others",
    "load data inpath 'x' into table others",
    "set spark.sql.runSQLOnFiles = true",
    "set",
    "reset",
    "set variable x = 1",
    "declare variable x int",
    "use default",
    "show tables",
    "show functions",
    "describe counts",
    "explain select 1",
    "cache table counts",
    "refresh table counts",
    "analyze table others compute statistics",
    "add jar 'x.jar'",
    "list jars",
    "execute immediate 'select 1'",
    "begin select 1; select 2; end",
    "select transform(letter) using 'cat' as (x) from counts",
    "select * from (select transform(letter) using 'cat' as (x) from counts)",
    "select * from counts version as of 1",
]

FORBIDDEN_RELATION = [
    "select * from text.`/etc/hosts`",
    "select * from parquet.`somewhere`",
    "select * from json.somewhere",
    "select (select count(*) from text.`/etc/hosts`)",
    "select * from counts where letter in (select value from text.`/etc/hosts`)",
    "select * from counts where exists (select 1 from text.`/etc/hosts`)",
    "with c as (select * from text.`/etc/hosts`) select 1",
    "select * from counts union all select value, 1, 1, 1 from text.`/etc/hosts`",
    "select * from counts, lateral (select * from text.`/etc/hosts`)",
    "select * from default.others",
    "select * from spark_catalog.default.others",
    "select * from global_temp.everybodys",
    "select * from identifier('text.`/etc/hosts`')",
    "select * from identifier('oth' || 'ers')",
    "select identifier('java_' || 'method')('java.lang.System', 'getenv', 'HOME')",
    "select * from identifier('counts')",
    "select * from IDENTIFIER /* by name */ ('counts')",
    "select identifier('letter') from counts",
    "select letter as identifier('a') from counts",
    "select * from counts identifier('c')",
    "with identifier('c') as (select 1) select * from c",
    "select identifier('abs')(-1)",
    "select * from (with others as (select 1) select * from others), others",
    "select * from range(1000000000000)",
    "select count(*) from range(0, 1000000000000, 1)",
    "select * from python_worker_logs()",
    "select * from sql_keywords()",
]

FORBIDDEN_FUNCTION = [
    f"select {REFLECT}",
    "select reflect('java.lang.System', 'getenv', 'HOME')",
    "select try_reflect('java.lang.System', 'getenv', 'HOME')",
    "select input_file_name()",
    "select input_file_block_start()",
    "select registered(letter) from counts",
    "select doubled(1)",
    "select default.doubled(1)",
    "select spark_catalog.default.doubled(1)",
    "select no_such_function(1)",
    f"select * from counts where letter = {REFLECT}",
    f"select * from counts order by {REFLECT}",
    f"select count(*) from counts group by {REFLECT}",
    f"select count(*) from counts group by letter having {REFLECT} is null",
    f"select * from counts a join counts b on a.letter = {REFLECT}",
    f"values ({REFLECT})",
    f"select upper(concat('a', {REFLECT}))",
    f"select transform(array('HOME'), x -> concat(x, {REFLECT}))",
    f"select case when true then {REFLECT} end",
    f"select max({REFLECT}) over (partition by letter) from counts",
    f"select * from counts lateral view explode(array({REFLECT})) t as x",
    f"select explode(array({REFLECT}))",
    f"select * from explode(array({REFLECT}))",
    f"with c as (select {REFLECT} as x) select * from c",
    f"select (select {REFLECT})",
    f"select * from counts where exists (select {REFLECT})",
    f"select * from counts, lateral (select {REFLECT})",
    f"select cast({REFLECT} as binary)",
    f"select 1 limit length({REFLECT})",
    f"select * from counts pivot (max({REFLECT}) for letter in ('a'))",
    "select current_user()",
    "select user()",
    "select session_user()",
    "select current_database()",
    "select current_catalog()",
    "select current_user",
    "select CURRENT_USER as me",
    "select session_user",
    "select user",
    "select length(concat('a', user))",
    "select * from counts where letter = current_user",
    "select * from counts order by session_user",
    "select count(*) from counts group by user",
    "select count(*) from counts group by letter having max(user) is null",
    "select transform(array('a'), x -> concat(x, user))",
    "select (select user)",
    "with c as (select user as x) select * from c",
    "select * from counts, lateral (select user)",
    "select max(user) over (partition by letter) from counts",
]

EXPRESSION_TOO_LARGE = [
    "select length(repeat('x', 2147483647))",
    "select length(repeat(letter, 2147483647)) from counts",
    "select length(repeat('x', 1024 * 1024 * 1024))",
    "select length(repeat(repeat('x', 1000000), 1000000))",
    "select length(space(2000000000))",
    "select length(lpad('x', 2000000000, 'y'))",
    "select length(rpad(letter, 2000000000)) from counts",
    "select length(rpad(cast('x' as binary), 2000000000))",
    "select size(sequence(1, 2000000000))",
    "select size(sequence(1, 1, 1)) + size(sequence(2000000000, 1, -2))",
    "select size(sequence(date'1900-01-01', date'2000-01-01', interval 1 second))",
    "select size(sequence(timestamp'1999-12-31', timestamp'2000-01-01', interval 1 millisecond))",
    "select size(array_repeat(1, 2000000000))",
    "select size(array_insert(array(1), 2000000000, 2))",
    "select format_string('%1$2000000000d', 1)",
    "select printf('%-2000000000s|', letter) from counts",
    "select format_number(1.5, 2000000000)",
    "select length(randstr(2000000000))",
    "select stack(2000000000, 1)",
    "select replace(repeat('x', 1000000), 'x', repeat('y', 1000000))",
    "select length(count_min_sketch(n, 0.000000001d, 0.99d, 1)) from counts",
    "select count(*) from counts lateral view explode(sequence(1, 2000000000)) t as x",
    "select * from counts where letter = repeat('a', 2000000000)",
    "select (select length(repeat('x', 2000000000)))",
    "select transform(array(1), x -> repeat('x', 2000000000))",
    "select length(system.builtin.repeat('x', 2000000000))",
]

OTHERS = {
    "query.several_statements": [
        "select 1; select 2",
        "select 1; drop table others",
        "select ';' ; select 2",
    ],
    "query.unknown_operator": ["select * from others", "select * from theirs", "table theirs"],
    "query.invalid": [
        "",
        "selekt 1",
        "select nothing from counts",
        'select * from counts where letter = "a"',
        "select :parameter",
        "select * from counts where and",
    ],
}

REFUSED = [
    *(("query.not_a_query", sql) for sql in NOT_A_QUERY),
    *(("query.forbidden_relation", sql) for sql in FORBIDDEN_RELATION),
    *(("query.forbidden_function", sql) for sql in FORBIDDEN_FUNCTION),
    *(("query.expression_too_large", sql) for sql in EXPRESSION_TOO_LARGE),
    *((code, sql) for code, texts in OTHERS.items() for sql in texts),
]


@pytest.mark.parametrize(("code", "sql"), REFUSED, ids=[sql for _, sql in REFUSED])
def test_refused(pipeline: ab.Pipeline, spark: SparkSession, code: str, sql: str) -> None:
    before = jobs(spark)
    with pytest.raises(QueryError) as raised:
        pipeline.query(sql)
    assert raised.value.code == code, raised.value
    assert raised.value.do
    assert "\n" not in str(raised.value)
    # It was refused, not run.
    assert jobs(spark) == before


def test_nothing_was_changed_by_all_that(pipeline: ab.Pipeline, spark: SparkSession) -> None:
    assert [row.tableName for row in spark.sql("show tables in default").collect()] == [
        "others",
        "theirs",
    ]
    assert [row.word for row in spark.table("others").collect()] == ["secret"]
    counts = pipeline.query("select letter, n from counts order by letter")
    assert rows_of(counts) == [("a", 2), ("b", 1)]


ALLOWED = [
    ("select length(repeat('x', 1000))", 1000),
    ("select size(sequence(1, 100000))", 100_000),
    ("select length(repeat(letter, cast(n as int) * 3)) from counts where letter = 'a'", 6),
    ("select length(lpad('x', 5, 'y'))", 5),
    ("select a.user from values (7) a(user)", 7),
    ("select identifier from values (8) a(identifier)", 8),
    ("select year(current_date) - year(current_timestamp)", 0),
]


@pytest.mark.parametrize(("sql", "answer"), ALLOWED, ids=[sql for sql, _ in ALLOWED])
def test_allowed(pipeline: ab.Pipeline, sql: str, answer: int) -> None:
    assert rows_of(pipeline.query(sql)) == [(answer,)]


def test_a_view_of_the_users_never_stands_in_for_state(
    pipeline: ab.Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(7).createOrReplaceTempView("counts")
    pipeline.state("counts").createOrReplaceTempView("counts")
    pipeline.state("counts").where("n > 1").createOrReplaceTempView("theirs")
    try:
        assert pipeline.query("select count(*) as n from counts").to_pylist() == [{"n": 2}]
    finally:
        spark.catalog.dropTempView("counts")
