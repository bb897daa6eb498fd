"""SQL in steps: an expression means there what it means to Spark anywhere, wherever it stands."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.protocol.sources import Source
from anabranch.spark.session import open_session
from tests.spark.running import bag, completed, rows_of, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "k string, v bigint, `odd name` string, `tick``s` double, `select` int, s struct<a:int>"

SELECTED = [
    "k",
    "v + 1 as next",
    "v * 2 twice",
    "-v",
    "`odd name`",
    "`tick``s` as `tick``t`",
    "`select` as `from`",
    "K as upper_name",
    "v -- what is left of the line says nothing",
    "/* nor does this */ v as commented /* at all */",
    "case when v > 2 then 'a;b' else '${nothing} {x} %s' end as words",
    "'it''s' || \"double\" as quotes",
    "r'\\d+' as raw",
    "s.a",
    "s.a as inner",
    "struct(v, k as kk) as packed",
    "array(v, null)[0] as first",
    "filter(sequence(1, 3), x -> x <> v) as others",
    "v in (1, 2) as few",
    "v between 1 and 3 and true as between_as",
    "cast(v as string) as text",
    "v::decimal(10,1) / 3 as third",
    "coalesce(k, 'none') = 'none' as is_none",
    "timestamp '2024-01-01 00:00:00' + make_dt_interval(0, v) as later",
    "date '2024-02-29' as leap",
    "extract(year from date '2024-02-29') as year",
    "element_at(map('a', v), 'a') as looked_up",
    "try_divide(1, v - 1) as maybe",
    "if(v = 0, null, 1 / v) as guarded",
    "null as nothing",
    "1 as one",
    "'x' as x",
    "count_if",
]
ROWS: list[dict[str, Any]] = [
    {
        "k": None if n == 3 else f"k{n % 3}",
        "v": n,
        "odd name": f"o{n}",
        "tick`s": n / 4,
        "select": -n,
        "s": {"a": n} if n % 2 else None,
        "count_if": n,
    }
    for n in range(6)
]
ALL = SCHEMA + ", count_if int"


def column(text: str) -> Column:
    return F.expr(text)


@pytest.fixture(scope="module")
def wanted(_started_spark: SparkSession) -> list[tuple[Any, ...]]:
    """What Spark gives for the expressions over the rows with v < 5, in a batch."""
    rows = [tuple(row[name] for name in names()) for row in ROWS]
    session = open_session(None)
    batch = session.createDataFrame(rows, ALL).where("v < 5").select(*map(column, SELECTED))
    jvm = _started_spark._jvm
    assert jvm is not None
    jvm.SparkSession.setActiveSession(_started_spark._jsparkSession)
    return rows_of(batch.toArrow())


def names() -> list[str]:
    return list(ROWS[0])


def passed(key: Any, row: Any, state: Any) -> Any:
    return tuple(row), True


def test_expressions_over_files_over_python_rows_and_behind_regions(
    tmp_path: Path, wanted: list[tuple[Any, ...]]
) -> None:
    """Alone on their stream, beside another consumer, and behind a stateful operator."""
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    write_json(tmp_path / "in" / "rows.json", shuffled)
    flow = ab.Dataflow("expressions")
    sinks = {name: ab.MemorySink() for name in ("alone", "forked", "behind", "told")}
    for name in ("alone", "forked"):
        source = ab.FileSource(tmp_path / "in", "json", ALL, watch=False)
        rows = flow.source(name, source)
        rows.where("v < 5 -- not five").select(*SELECTED).sink(f"{name}-out", sinks[name])
        if name == "forked":
            kept = rows.key_distribute("by-k", "k").stateful_map(
                "passed", passed, state="seen boolean", output=ALL
            )
            kept.where("v < 5").select(*SELECTED).sink("behind-out", sinks["behind"])
            kept.key_distribute("by-sign", sign="v > 0 -- plus").aggregate(
                "sums", total="sum(v -- all\n)", n="count(/* rows */ v)"
            ).sink("sums-out", ab.MemorySink())
    report = flow.source(
        "told", ab.ScriptedSource(ALL, [[tuple(row.values()) for row in ROWS], ab.EOF])
    )
    report.where("v < 5").select(*SELECTED).sink("told-out", sinks["told"])
    pipeline = completed(flow, tmp_path / "state")
    for name, sink in sinks.items():
        (table,) = sink.steps().values()
        assert bag(rows_of(table)) == bag(wanted), name
    positive = sum(row["v"] for row in ROWS)
    assert bag(rows_of(pipeline.state_table("sums"))) == bag([(False, 0, 1), (True, positive, 5)])


def test_a_star_beside_other_columns_and_replaced_columns(tmp_path: Path) -> None:
    flow = ab.Dataflow("stars")
    sink = ab.MemorySink()
    rows = flow.source(
        "rows", ab.ScriptedSource("a int, b string", [[(1, "x"), (2, None)], ab.EOF])
    )
    rows.select("a as first", "*", "a + 1 as last").with_columns(A="a * 10", c="a").sink("s", sink)
    completed(flow, tmp_path / "state")
    assert bag(sink.rows()) == bag(
        {"first": a, "A": a * 10, "b": b, "last": a + 1, "c": a} for a, b in [(1, "x"), (2, None)]
    )


def test_an_expression_sees_no_foreign_rows(tmp_path: Path) -> None:
    """Rows of one consumer must not make the other's expressions fail: they have NULLs there."""
    flow = ab.Dataflow("apart")
    sinks = ab.MemorySink(), ab.MemorySink()
    for number, sink in enumerate(sinks):
        rows = flow.source(
            f"rows-{number}", ab.ScriptedSource("v int not null", [[(number + 1,)], ab.EOF])
        )
        other = 1 - number
        kept = rows.where(f"if(v = {other + 1}, raise_error('a foreign row'), true)")
        kept.where("if(v is null, raise_error('no row at all'), true)").select(
            "assert_true(v is not null) as fine", "v"
        ).key_distribute(f"by-v-{number}", k="if(v is null, raise_error('no key'), v)").aggregate(
            f"n-{number}", n="sum(if(v is null, raise_error('nothing to add'), 1))"
        ).where("n >= 1").sink(f"out-{number}", sink)
    completed(flow, tmp_path / "state")
    assert [sink.rows() for sink in sinks] == [[{"k": 1, "n": 1}], [{"k": 2, "n": 1}]]


def test_collated_columns_compare_as_their_collation_says(tmp_path: Path) -> None:
    """Before and behind a region, whoever reads the rows."""
    schema = "c string collate UTF8_LCASE, s struct<d:string collate UTF8_LCASE>"
    rows = [{"c": text, "s": {"d": text}} for text in ("abc", "ABC", "x")]
    write_json(tmp_path / "in" / "rows.json", rows)
    flow = ab.Dataflow("collated")
    sources: dict[str, Source] = {
        "read": ab.FileSource(tmp_path / "in", "json", schema, watch=False),
        "told": ab.ScriptedSource(schema, [rows, ab.EOF]),
    }
    sinks = {f"{name}-{place}": ab.MemorySink() for name in sources for place in ("at", "behind")}
    for name, source in sources.items():
        stream = flow.source(name, source)
        stream.where("c = 'aBc' and s.d = 'aBc'").sink(f"{name}-at-out", sinks[f"{name}-at"])
        stream.key_distribute(f"by-{name}", k="c collate UTF8_BINARY").stateful_map(
            f"passed-{name}", passed, state="seen boolean", output=schema
        ).where("c = 'aBc' and s.d = 'aBc'").sink(f"{name}-behind-out", sinks[f"{name}-behind"])
    completed(flow, tmp_path / "state")
    for name, sink in sinks.items():
        assert bag(sink.rows()) == bag(rows[:2]), name
