"""Catalyst as the analyzer: types, and one sentence for whatever cannot be used."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.dataflow.types.schema import COLLATION, parse_schema, to_ddl
from anabranch.errors import InvalidDataflow
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.session import PER_SESSION, open_session
from tests.spark.running import jobs

pytestmark = pytest.mark.spark

SCHEMA = parse_schema(
    "id int not null, `two words` string, at timestamp, amount decimal(10,2), flag boolean, "
    "m map<string,double>, st struct<q:string collate UNICODE_CI,n:bigint>, tags array<string>, "
    "current_date string, ci string collate UTF8_LCASE"
)


@pytest.fixture(scope="module")
def analyzer(_started_spark: SparkSession) -> SparkAnalyzer:
    return SparkAnalyzer(open_session(None))


def given(analyzer: SparkAnalyzer, *texts: str) -> str:
    """The columns of expressions as DDL, or the sentence."""
    answer = analyzer.columns(SCHEMA, [(None, text) for text in texts])
    return answer if isinstance(answer, str) else to_ddl(answer)


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("id", "id int not null"),
        ("id + 1L as next", "next bigint not null"),
        ("`two words`", "`two words` string"),
        ("upper(`two words`) as u", "u string"),
        ("amount * 2 as twice", "twice decimal(12,2)"),
        ("cast(at as timestamp_ntz) as local", "local timestamp_ntz"),
        ("date(at) as day", "day date"),
        ("m['k'] as v", "v double"),
        ("st.n", "n bigint"),
        ("tags[0] as first", "first string"),
        (
            "named_struct('a', id, 'b', tags) as s",
            "s struct<a:int not null,b:array<string>> not null",
        ),
        ("map('k', amount) as byname", "byname map<string,decimal(10,2)> not null"),
        ("transform(tags, t -> length(t)) as lengths", "lengths array<int>"),
        ("aggregate(tags, 0, (n, t) -> n + 1) as n", "n int"),
        ("current_date", "current_date string"),  # the user's column, not the function
        ("'select (subquery) now()' as words", "words string not null"),
        ("from_json(`two words`, 'a int, b string') as j", "j struct<a:int,b:string>"),
        ("null as nothing", "nothing void"),
    ],
)
def test_types_are_catalysts(analyzer: SparkAnalyzer, text: str, ddl: str) -> None:
    assert given(analyzer, text) == ddl


def test_a_star_and_several_expressions_keep_their_order(analyzer: SparkAnalyzer) -> None:
    assert given(analyzer, "*") == to_ddl(SCHEMA)
    assert given(analyzer, "flag", "*", "1 as one") == (
        f"flag boolean, {to_ddl(SCHEMA)}, one int not null"
    )


def test_named_expressions_have_their_names(analyzer: SparkAnalyzer) -> None:
    answer = analyzer.columns(SCHEMA, [("day", "date(at)"), ("ID", "id")])
    assert answer == parse_schema("day date, ID int not null")


def test_collations_are_told_at_every_depth(analyzer: SparkAnalyzer) -> None:
    answer = analyzer.columns(
        SCHEMA,
        [
            ("a", "ci"),
            ("b", "`two words` collate UNICODE"),
            ("c", "array(ci)"),
            ("d", "st"),
            ("e", "ci collate UTF8_BINARY"),
        ],
    )
    assert isinstance(answer, pa.Schema)
    assert answer.field("a").metadata == {COLLATION: b"UTF8_LCASE"}
    assert answer.field("b").metadata == {COLLATION: b"UNICODE"}
    assert answer.field("c").type.value_field.metadata == {COLLATION: b"UTF8_LCASE"}
    assert answer.field("d").type.field("q").metadata == {COLLATION: b"UNICODE_CI"}
    assert answer.field("e").metadata is None


AGAIN = "when a step runs again"
ONE_ROW = "over one row"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rand()", "not deterministic"),
        ("rand(42)", "not deterministic"),
        ("uuid()", "not deterministic"),
        ("monotonically_increasing_id()", "not deterministic"),
        ("spark_partition_id()", "not deterministic"),
        ("input_file_name()", "not deterministic"),
        ("reflect('java.util.UUID', 'randomUUID')", "not deterministic"),
        ("transform(tags, t -> concat(t, uuid()))", "not deterministic"),
        ("current_timestamp()", AGAIN),
        ("now() as at2", AGAIN),
        ("localtimestamp()", AGAIN),
        ("current_time()", AGAIN),
        ("unix_timestamp()", AGAIN),
        ("datediff(now(), at)", AGAIN),
        ("timestamp 'now'", AGAIN),
        ("date'today'", AGAIN),
        ("count(*)", ONE_ROW),
        ("sum(id) + 1", ONE_ROW),
        ("row_number() over (order by id)", ONE_ROW),
        ("sum(id) over ()", ONE_ROW),
        ("explode(tags)", ONE_ROW),
        ("posexplode(tags)", ONE_ROW),
        ("stack(2, 1, 2)", ONE_ROW),
        ("window(at, '1 hour')", ONE_ROW),
        ("(select 1)", "subqueries"),
        ("id in (select 1)", "subqueries"),
        ("exists (select 1)", "subqueries"),
        ("interval 1 day", "column \"INTERVAL '1' DAY\" is interval day"),
        ("at - at as gap", 'column "gap" is interval day to second'),
        ("make_interval(1) as i", 'column "i" is interval'),
        ("parse_json(`two words`) as v", 'column "v" is variant'),
        ("array(parse_json('1')) as v", 'column "v" is array<variant>'),
        ("time '10:00:00' as t", 'column "t" is time(6)'),
        ("st.*", "2 columns"),
        ("* except (id)", "9 columns"),
        ("nosuch", "`nosuch` cannot be resolved"),
        ("id + tags", "due to data type mismatch"),
        ("nosuchfunction(id)", "nosuchfunction"),
        ("id +", "Syntax error at or near end of input"),
        ("id as a, id as b", "Syntax error at or near ','"),
        ("'", "Syntax error"),
        ("`", "Syntax error"),
        ("-- nothing", "Syntax error"),
        ("id; drop table x", "Syntax error at or near ';'"),
        ("date '2024-13-01'", "INVALID|cannot|invalid|value"),
        ("cast(id as decimal(50,2))", "precision"),
        ("from_json(`two words`, 'a blob')", "blob"),
        ("to_char(id, 'zz')", "format"),
        ("grouping(id)", "grouping"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(
    analyzer: SparkAnalyzer, text: str, why: str
) -> None:
    answer = analyzer.columns(SCHEMA, [(None, text)])
    assert isinstance(answer, str)
    if "|" in why:
        assert any(word in answer for word in why.split("|"))
    else:
        assert why in answer
    assert "\n" not in answer
    assert "SQLSTATE" not in answer
    assert not answer.startswith("[")
    assert len(answer) < 400


@pytest.mark.parametrize("text", ["id > 0", "flag", "`two words` like 'a%' and at is not null"])
def test_conditions(analyzer: SparkAnalyzer, text: str) -> None:
    assert analyzer.condition(SCHEMA, text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id", 'of type "INT" is not a boolean'),
        ("parse_json('true')", "is not a boolean"),
        ("*", "Invalid usage of '*'"),
        ("rand() > 0.5", "not deterministic"),
        ("at > now()", AGAIN),
        ("at > timestamp 'yesterday'", AGAIN),
        ("id in (select 1)", "subqueries"),
        ("count(*) > 1", "count(1)"),
        ("row_number() over (order by id) = 1", "window functions"),
        ("explode(array(flag))", "generator"),
        ("nosuch > 1", "`nosuch` cannot be resolved"),
        ("id >", "Syntax error"),
    ],
)
def test_what_is_no_condition_is_said_in_one_sentence(
    analyzer: SparkAnalyzer, text: str, why: str
) -> None:
    answer = analyzer.condition(SCHEMA, text)
    assert answer is not None
    assert why in answer
    assert "\n" not in answer


def test_nothing_is_printed_about_an_error(
    analyzer: SparkAnalyzer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(analyzer.columns(SCHEMA, [(None, "nosuch")]), str)
    printed = capfd.readouterr()
    assert "nosuch" not in printed.out + printed.err


def test_an_expression_does_not_see_the_one_beside_it(analyzer: SparkAnalyzer) -> None:
    answer = analyzer.columns(SCHEMA, [("twice", "id * 2"), ("four_times", "twice * 2")])
    assert isinstance(answer, str)
    assert "`twice` cannot be resolved" in answer


def keep(key: Any, row: Any, state: Any) -> Any:
    return None, state


def test_all_mistakes_of_a_flow_are_listed_and_nothing_was_started(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = ab.Dataflow("mistakes")
    rows = flow.source("rows", ab.ScriptedSource("k string, v double", [[("a", 1.0)], ab.EOF]))
    first = rows.where("v").where("amount > 0")
    first.with_columns(r="rand()", gap="interval 1 day", ok="v * 2").sink("a", ab.MemorySink())
    first.select("k", "explode(array(v)) as e", "now() as at").sink("b", ab.MemorySink())
    (
        rows.key_distribute("by-ci", ci="k collate UNICODE_CI", half="v / 2")
        .stateful_map("keep", keep, state="s blob", output="k string")
        .sink("c", ab.MemorySink())
    )
    rows.key_distribute("by-k", "k").aggregate("totals", total="sum(k)", n="count(nosuch)").sink(
        "c", ab.FileSink(tmp_path / "out")
    )
    before = jobs(spark)
    with pytest.raises(InvalidDataflow) as caught:
        ab.run(flow, directory=tmp_path / "state")
    found = [f"{problem.operator}: {problem.what}" for problem in caught.value.problems]
    wanted = [
        ("where", 'of type "DOUBLE" is not a boolean'),
        ("where", "`amount` cannot be resolved"),
        ("with_columns", "not deterministic"),
        ("with_columns", '"gap" is interval day'),
        ("select", "over one row"),
        ("select", "current time"),
        ("key of", "collation UNICODE_CI"),
        ("key of", "double"),
        ("stateful_map", "blob"),
        ("aggregate", "sum is not defined"),
        ("aggregate", "nosuch"),
        ("sink", "name is taken"),
    ]
    for operator, what in wanted:
        report = [text for text in found if text.startswith(operator) and what in text]
        assert len(report) == 1, (operator, what, "\n".join(found))
    assert len(found) == len(wanted)
    assert jobs(spark) == before
    assert list(tmp_path.iterdir()) == []


def test_the_least_of_collated_strings_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """States are compared byte by byte, which is not what the collation says."""
    flow = ab.Dataflow("collated")
    source = ab.ScriptedSource("k int, c string collate UTF8_LCASE", [[(1, "a")], ab.EOF])
    keyed = flow.source("rows", source).key_distribute("by-k", "k")
    keyed.aggregate("ends", low="min(c)", high="max(concat(c, 'x'))", n="count(c)").sink(
        "out", ab.MemorySink()
    )
    with pytest.raises(InvalidDataflow) as caught:
        ab.run(flow, directory=tmp_path / "state")
    found = [(problem.operator, problem.what) for problem in caught.value.problems]
    assert found == [
        ('aggregate "ends"', 'column "low": min of a string with collation UTF8_LCASE'),
        ('aggregate "ends"', 'column "high": max of a string with collation UTF8_LCASE'),
    ]
    assert "min(c collate UTF8_BINARY)" in caught.value.problems[0].do


def test_a_run_leaves_the_users_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """The pipeline has a session of its own; the user's stays the active one."""
    before = {name: spark.conf.get(name, None) for name in PER_SESSION}
    SparkSession._activeSession = spark  # pyspark keeps it for all threads, beside the JVM's
    sink = ab.MemorySink()
    flow = ab.Dataflow("one-row")
    rows = flow.source("rows", ab.ScriptedSource("v int", [[(1,)], ab.EOF])).where("v > 0")
    rows.sink("s", sink)
    rows.sink("orc", ab.FileSink(str(tmp_path / "orc"), format="orc"))
    ab.run(flow, directory=tmp_path / "state", bins=4).wait(60)
    assert sink.rows() == [{"v": 1}]
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)
    assert {name: spark.conf.get(name, None) for name in PER_SESSION} == before


def test_a_run_from_another_thread_uses_the_spark_that_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An active session is a matter of the thread; Spark is one of the process."""
    sink = ab.MemorySink()
    flow = ab.Dataflow("one-row")
    flow.source("rows", ab.ScriptedSource("v int", [[(1,)], ab.EOF])).sink("s", sink)
    before = jobs(spark)
    settings = {"spark.sql.shuffle.partitions": "5", "spark.driver.memory": "9g"}

    def run() -> None:
        ab.run(flow, directory=tmp_path / "state", bins=4, spark_conf=settings).wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert sink.rows() == [{"v": 1}]
    assert jobs(spark) == before + 1
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_settings_that_steps_rely_on_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = ab.Dataflow("one-row")
    flow.source("rows", ab.ScriptedSource("v int", [[(1,)], ab.EOF])).sink("s", ab.MemorySink())
    with pytest.raises(ValueError, match=r"steps rely on spark.sql.session.timeZone=UTC"):
        ab.run(
            flow,
            directory=tmp_path / "state",
            spark_conf={"spark.sql.session.timeZone": "Europe/Berlin"},
        )
    assert list(tmp_path.iterdir()) == []
