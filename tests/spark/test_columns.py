"""Value columns of every type: from Python through two regions into files, and back."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from tests.spark.running import bag, completed, exact, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

AT = dt.datetime(2024, 2, 29, 23, 59, 59, 999999, dt.UTC)
OLD = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
NTZ = AT.replace(tzinfo=None)

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "flag": ("boolean", [True, False]),
    "tiny": ("tinyint", [-128, 127]),
    "small": ("smallint", [-(2**15), 2**15 - 1]),
    "whole": ("int", [-(2**31), 2**31 - 1]),
    "big": ("bigint", [-(2**63), 2**63 - 1]),
    "half": ("float", [0.5, -math.inf, -0.0]),
    "real": ("double", [0.1, math.nan, -0.0, math.inf, 5e-324, 1.7976931348623157e308]),
    "price": ("decimal(10,2)", [Decimal("-0.01"), Decimal("99999999.99")]),
    "wide": ("decimal(38,18)", [Decimal("-" + "9" * 20 + "." + "9" * 18), Decimal("1E-18")]),
    "text": ("string", ["", 'a"\\\n\t\u2028\U0001f600', "x" * 5000]),
    "bytes": ("binary", [b"", b"\x00\xff", b"y" * 3000]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "at": ("timestamp", [AT, OLD]),
    "local": ("timestamp_ntz", [NTZ, OLD.replace(tzinfo=None)]),
    "list": ("array<int>", [[], [1, None, 3]]),
    "lists": ("array<array<string>>", [[[], None, ["a", None]], [["b"]]]),
    "map": ("map<string,double>", [{}, {"a": 1.5, "b": None}]),
    "struct": ("struct<a:int,b:string>", [{"a": 1, "b": None}, {"a": None, "b": None}]),
    "deep": (
        "array<struct<at:timestamp,m:map<string,array<decimal(5,1)>>,bin:binary>>",
        [
            [{"at": AT, "m": {"k": [Decimal("1.5"), None]}, "bin": b"\x01"}, None],
            [{"at": None, "m": {}, "bin": None}],
        ],
    ),
    "nest": (
        "struct<s:struct<d:date,n:timestamp_ntz>,l:array<map<string,boolean>>>",
        [
            {"s": {"d": dt.date(2024, 1, 1), "n": NTZ}, "l": [{"x": True}, None]},
            {"s": None, "l": None},
        ],
    ),
    "odd name`s": ("string", ["quoted"]),
}
SCHEMA = "id int, " + ", ".join(
    f"`{name.replace('`', '``')}` {kind}" for name, (kind, _) in COLUMNS.items()
)
NAMES = ["id", *COLUMNS]


def row(number: int) -> tuple[Any, ...]:
    """Each column goes round its values and NULL; row 0 is NULL everywhere."""
    if number == 0:
        return (0, *(None for _ in COLUMNS))
    picked = []
    for _, values in COLUMNS.values():
        every = [*values, None]
        picked.append(every[number % len(every)])
    return (number, *picked)


ROWS = [row(n) for n in range(14)]
PAGES = [ROWS[:5], ROWS[5:]]


def twice(key: Any, row: Any, before: Any) -> Any:
    """Keeps the row before, of all types, as state; emits it and the row itself."""
    return [tuple(row), *([] if before is None else [tuple(before)])], tuple(row)


def given(key: Any, row: Any, state: Any) -> Any:
    return tuple(row), (state or 0) + 1


def all_types(out: Path) -> ab.Dataflow:
    flow = ab.Dataflow("all-types")
    rows = flow.source("rows", ab.ScriptedSource(SCHEMA, [*PAGES, ab.EOF]))
    kept = rows.key_distribute("by-third", third="id % 3").stateful_map(
        "twice", twice, state=SCHEMA, output=SCHEMA
    )
    again = (
        kept.where("id >= 0")
        .with_columns(tiny="tiny", text="concat(text, '')")
        .key_distribute("by-fifth", fifth="id % 5")
        .stateful_map("given", given, state=None, output=SCHEMA)
    )
    again.sink("parquet", ab.FileSink(out / "parquet", "parquet"))
    again.select("*").sink("json", ab.FileSink(out / "json", "json"))
    again.sink("memory", MEMORY)
    return flow


MEMORY = ab.MemorySink()


def emitted() -> list[tuple[Any, ...]]:
    made = []
    last: dict[int, tuple[Any, ...]] = {}
    for each in ROWS:
        third = each[0] % 3
        made += [each, *([last[third]] if third in last else [])]
        last[third] = each
    return made


Ran = tuple[Path, ab.Pipeline]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, _started_spark: SparkSession) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp("types")
    yield home, completed(all_types(home), home / "state", bins=8)
    MEMORY.clear()


def test_values_pass_two_regions_unchanged(ran: Ran) -> None:
    assert len(ROWS) > max(len(values) for _, values in COLUMNS.values())
    assert bag(tuple(each.values()) for each in MEMORY.rows()) == bag(emitted())


def test_state_holds_every_type(ran: Ran) -> None:
    _, pipeline = ran
    last = {each[0] % 3: each for each in ROWS}
    kept = rows_of(pipeline.state_table("twice"))
    assert bag(kept) == bag((third, *each) for third, each in last.items())


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_spark_reads_the_files_back(
    ran: Ran, spark: SparkSession, form: Literal["parquet", "json"]
) -> None:
    home, _ = ran
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    reader = session.read if form == "parquet" else session.read.schema(SCHEMA)
    table = reader.format(form).load(str(home / form)).toArrow()
    assert table.schema.names == NAMES
    assert bag(rows_of(table)) == bag(emitted())


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_the_output_of_a_pipeline_is_the_input_of_another(
    ran: Ran, tmp_path: Path, form: Literal["parquet", "json"]
) -> None:
    home, _ = ran
    flow = ab.Dataflow("again")
    sink = ab.MemorySink()
    rows = flow.source("rows", ab.FileSource(home / form, form, SCHEMA, watch=False))
    rows.key_distribute("by-id", "id").stateful_map(
        "given", given, state="n bigint", output=SCHEMA
    ).sink("rows-out", sink)
    pipeline = completed(flow, tmp_path / "state", bins=8)
    assert bag(tuple(each.values()) for each in sink.rows()) == bag(emitted())
    counts: dict[int, int] = {}
    for each in emitted():
        counts[each[0]] = counts.get(each[0], 0) + 1
    assert dict(rows_of(pipeline.state_table("given"))) == counts


def test_the_aggregates_of_every_type(ran: Ran, tmp_path: Path, spark: SparkSession) -> None:
    """Least, greatest, sum and mean, over two steps, as Spark's own batch query gives them."""
    home, _ = ran
    ordered = [n for n, (kind, _) in COLUMNS.items() if "<" not in kind and n != "odd name`s"]
    added = ["tiny", "small", "whole", "price", "half"]
    flow = ab.Dataflow("extremes")
    rows = flow.source("rows", ab.ScriptedSource(SCHEMA, [*PAGES, ab.EOF]))
    columns = {f"least_{n}": f"min({n})" for n in ordered}
    columns |= {f"most_{n}": f"max({n})" for n in ordered}
    columns |= {f"n_{n}": f"count({n})" for n in ("list", "deep", "text")}
    columns |= {f"sum_{n}": f"sum({n})" for n in added}
    columns |= {f"avg_{n}": f"avg({n})" for n in added}
    sink = ab.MemorySink()
    rows.key_distribute("by-half", parity="id % 2").aggregate("extremes", **columns).sink(
        "out", sink
    )
    completed(flow, tmp_path / "state", bins=8)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    batch = session.read.parquet(str(home / "parquet")).dropDuplicates(["id"])
    wanted = batch.groupBy((batch.id % 2).alias("parity")).agg(
        *(F.expr(text).alias(name) for name, text in columns.items())
    )
    found = {each["parity"]: each for each in sink.steps()[2].to_pylist()}
    expected = {each["parity"]: each for each in wanted.toArrow().to_pylist()}
    assert found.keys() == expected.keys() == {0, 1}
    for parity, each in expected.items():
        for name, value in each.items():
            assert repr(exact(found[parity][name])) == repr(exact(value)), (parity, name)
