"""Every aggregate function, with and without filter, against plain Spark SQL over the same rows.

The same files go through a region, one a step, on 1, 2 and 5 workers. What each key shows
after its last step must be what ``select … group by`` gives over all rows.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.refused import REFUSED
from anabranch.dataflow.aggregates.rules import CALLABLE, RULES, WITHIN_GROUP
from anabranch.dataflow.types.schema import parse_schema, type_to_ddl
from anabranch.dataflow.validate import validate
from anabranch.spark.analyzer import SparkAnalyzer
from tests.spark.running import completed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = (
    "k string, u int, i int, big bigint, d double, f float, m decimal(10,2), s string, b boolean,"
    " at timestamp, day date, xs array<int>, r struct<a:int,b:string>, c boolean"
)
STEPS, ROWS_PER_STEP = 2, 90

#: Column, our text, and Spark's where it is another: where Spark leaves the order open, or fails.
AGGREGATES: dict[str, tuple[str, str | None]] = {
    "n": ("count(*)", None),
    "n_s": ("count(s)", None),
    "n_both": ("count(i, s)", None),
    "n_distinct": ("count(distinct s)", None),
    "n_pairs": ("count(distinct s, i)", None),
    "n_distinct_d": ("count(distinct d)", None),
    "n_if": ("count_if(i > 2)", None),
    "total_i": ("sum(i)", None),
    "total_d": ("sum(d)", None),
    "total_m": ("sum(m)", None),
    "total_once": ("sum(distinct i)", None),
    "mean_i": ("avg(i)", None),
    "mean_m": ("mean(m)", None),
    "mean_once": ("avg(distinct m)", None),
    "least_s": ("min(s)", None),
    "least_d": ("min(d)", None),
    "greatest_at": ("max(at)", None),
    "greatest_m": ("max(m)", None),
    "s_of_least": ("min_by(s, u)", None),
    "xs_of_greatest": ("max_by(xs, u)", None),
    "s_of_few": ("min_by(s, u, 3)", None),
    "i_of_many": ("max_by(i, u, 50)", None),
    "all_b": ("bool_and(b)", None),
    "any_b": ("some(b)", None),
    "bits_and": ("bit_and(big)", None),
    "bits_or": ("bit_or(i)", None),
    "bits_xor": ("bit_xor(big)", None),
    "variance_i": ("variance(i)", None),
    "variance_f": ("var_pop(f)", None),
    "deviation_m": ("std(m)", None),
    "deviation_i": ("stddev_pop(i)", None),
    "skew": ("skewness(i)", None),
    "kurt": ("kurtosis(i)", None),
    "co_pop": ("covar_pop(i, u)", None),
    "co_samp": ("covar_samp(i, u)", None),
    "co": ("corr(i, u)", None),
    "line_n": ("regr_count(i, u)", None),
    "line_avgx": ("regr_avgx(i, u)", None),
    "line_avgy": ("regr_avgy(i, u)", None),
    "line_sxx": ("regr_sxx(i, u)", None),
    "line_syy": ("regr_syy(i, u)", None),
    "line_sxy": ("regr_sxy(i, u)", None),
    "line_slope": ("regr_slope(i, u)", None),
    "line_intercept": ("regr_intercept(i, u)", None),
    "line_r2": ("regr_r2(i, u)", None),
    "flat_corr": ("corr(i, 1)", None),
    "flat_slope": ("regr_slope(i, 1)", None),
    "flat_intercept": ("regr_intercept(i, 1)", None),
    "flat_r2": ("regr_r2(1, i)", None),
    "first_s": ("first(s)", None),
    "first_xs": ("first_value(xs, true)", None),
    "last_r": ("last(r)", None),
    "last_i": ("last(i ignore nulls)", "last(i, true)"),
    "any_s": ("any_value(s)", None),
    "all_i": ("collect_list(i)", None),
    "all_r": ("array_agg(r)", None),
    "set_s": ("collect_set(s)", "sort_array(collect_set(s){f})"),
    "set_xs": ("collect_set(xs)", "sort_array(collect_set(xs){f})"),
    "texts": ("listagg(s, ', ')", None),
    "texts_once": (
        "string_agg(distinct s, '-')",
        "if(count(s){f} = 0, null, array_join(sort_array(collect_set(s){f}), '-'))",
    ),
    "most_i": ("mode(i)", "mode(i, true)"),
    "most_s": ("mode(s)", "mode(s, true)"),
    "middle": ("median(i)", None),
    "middle_m": ("median(m)", None),
    "share": ("percentile(big, 0.9)", None),
    "shares": ("percentile(d, array(0, 0.25, 1))", None),
    "share_cont": ("percentile_cont(0.3) within group (order by i)", None),
    "share_disc": ("percentile_disc(array(0, 0.3, 1)) within group (order by f)", None),
    "near": ("approx_percentile(i, 0.5)", None),
    "near_day": ("percentile_approx(day, array(0.0, 0.3, 1.0), 100)", None),
    "near_m": ("approx_percentile(m, 0.75, 500)", None),
    "about": ("approx_count_distinct(s)", None),
    "about_d": ("approx_count_distinct(d, 0.01)", None),
    "guarded": ("sum(100 div i) filter (where i <> 0)", "sum(if(i <> 0, 100 div i, null))"),
}
FILTER = " filter (where c)"


def with_filter(text: str) -> str:
    return text if "filter" in text else text + FILTER


def in_spark(ours: str, theirs: str | None) -> tuple[str, str]:
    """Spark's text without and with the filter; ``{f}`` marks the places where it belongs."""
    if theirs is not None and "{f}" in theirs:
        return theirs.replace("{f}", ""), theirs.replace("{f}", FILTER)
    if "filter" in ours:
        return theirs or ours, theirs or ours
    return theirs or ours, with_filter(theirs or ours)


def make_rows() -> list[list[dict[str, Any]]]:
    chance = random.Random(11)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    def one(number: int) -> dict[str, Any]:
        n = chance.randrange(-3, 9)
        moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=chance.randrange(500))
        # "rare" has one row or two, "never" no value at all, "no" is always left out.
        key = chance.choice([None, *"abcd", "never", "no"]) if number % 40 else "rare"
        row = {
            "k": key,
            "u": number,
            "i": maybe(n),
            "big": maybe(chance.randrange(-(2**40), 2**40)),
            "d": maybe(chance.choice([0.0, -0.0, 0.5, 1.25, -7.75, 3e5])),
            "f": maybe(n / 4),
            "m": maybe(Decimal(chance.randrange(-9999, 9999)) / 100),
            "s": maybe(chance.choice(["", "x", "yy", "é", "zzz"])),
            "b": maybe(chance.random() < 0.7),
            "at": maybe(moment),
            "day": maybe(moment.date()),
            "xs": maybe([n, None] if n % 2 else [n]),
            "r": maybe({"a": maybe(n), "b": "r"}),
            "c": False if key == "no" else maybe(chance.random() < 0.6),
        }
        return {name: None for name in row} | {"k": key, "u": number} if key == "never" else row

    rows = [one(number) for number in range(STEPS * ROWS_PER_STEP)]
    return [rows[at : at + ROWS_PER_STEP] for at in range(0, len(rows), ROWS_PER_STEP)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("rows")
    for number, rows in enumerate(make_rows()):
        path = home / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=parse_schema(SCHEMA)), path)
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    return home


def flow_over(inputs: Path, plain: ab.MemorySink, filtered: ab.MemorySink) -> ab.Dataflow:
    flow = ab.Dataflow("aggregates")
    source = ab.FileSource(inputs, "parquet", SCHEMA, watch=False, max_files_per_step=1)
    keyed = flow.source("rows", source).key_distribute("by-k", "k")
    texts = {name: ours for name, (ours, _) in AGGREGATES.items()}
    keyed.aggregate("plain", **texts).sink("plain-out", plain)
    some = {name: with_filter(ours) for name, ours in texts.items()}
    keyed.aggregate("filtered", **some).sink("filtered-out", filtered)
    return flow


Results = dict[str | None, dict[str, Any]]


@pytest.fixture(scope="module")
def wanted(inputs: Path, _started_spark: SparkSession) -> tuple[Results, Results]:
    """What Spark gives in a batch, in one partition, whose rows stay in their order."""
    session = _started_spark.newSession()
    # To compile so many expressions takes longer than to interpret them.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    files = sorted(inputs.iterdir())
    rows = session.read.schema(SCHEMA).parquet(str(files[0]))
    for path in files[1:]:
        rows = rows.union(session.read.schema(SCHEMA).parquet(str(path)))
    rows.coalesce(1).createOrReplaceTempView("aggregated_rows")
    found: tuple[Results, Results] = ({}, {})
    for place, results in enumerate(found):
        texts = {name: in_spark(*pair)[place] for name, pair in AGGREGATES.items()}
        # Beside distinct ones, Spark would compute all of them on rows that it has multiplied.
        for distinct in (False, True):
            columns = [f"{t} as {n}" for n, t in texts.items() if ("distinct " in t) is distinct]
            query = f"select k, {', '.join(columns)} from aggregated_rows group by k"
            for row in session.sql(query).collect():
                results.setdefault(row.k, {}).update(row.asDict(recursive=True))
    return found


def last_shown(sink: ab.MemorySink) -> Results:
    """The newest row of every key."""
    return {row["k"]: row for row in sink.rows()}


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        pairs = zip(found, wanted, strict=False)
        return len(found) == len(wanted) and all(same(f, w) for f, w in pairs)
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(found, dt.datetime):
        return bool(found == wanted.astimezone(dt.UTC))
    return bool(found == wanted)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_function_gives_what_spark_sql_gives(
    workers: int, inputs: Path, wanted: tuple[Results, Results], tmp_path: Path
) -> None:
    plain, filtered = ab.MemorySink(), ab.MemorySink()
    flow = flow_over(inputs, plain, filtered)
    pipeline = completed(flow, tmp_path / "state", workers=workers)
    assert pipeline.status().step == STEPS
    for sink, model in zip((plain, filtered), wanted, strict=True):
        shown = last_shown(sink)
        assert set(shown) == set(model)
        differing = [
            (key, name, shown[key][name], row[name])
            for key, row in model.items()
            for name in AGGREGATES
            if not same(shown[key][name], row[name])
        ]
        assert differing == []


def test_every_column_has_sparks_type(inputs: Path, spark: SparkSession) -> None:
    flow = flow_over(inputs, ab.MemorySink(), ab.MemorySink())
    typed = validate(flow.graph(), SparkAnalyzer(spark))
    node = next(n for n in flow.graph().stateful() if n.name == "plain")
    ours = {field.name: type_to_ddl(field.type) for field in typed.schema(node.id)}
    columns = [f"{in_spark(*pair)[0]} as {name}" for name, pair in AGGREGATES.items()]
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("empty_frame")
    theirs = spark.sql(f"select {', '.join(columns)} from empty_frame").schema
    spark.catalog.dropTempView("empty_frame")
    assert {f.name: f.dataType.simpleString() for f in theirs} == {
        name: kind for name, kind in ours.items() if name != "k"
    }


def test_every_function_is_compared() -> None:
    assert {parse_aggregate(ours).function for ours, _ in AGGREGATES.values()} == set(RULES)


def test_every_aggregate_function_of_spark_is_known_or_refused_by_name(spark: SparkSession) -> None:
    functions = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry  # type: ignore[union-attr]
    infos = functions.expressions().values().iterator()
    groups: dict[str, str] = {}
    while infos.hasNext():
        info = infos.next()._1()
        groups[info.getName()] = info.getGroup()
    theirs = {name for name, group in groups.items() if group == "agg_funcs"}
    assert len(theirs) > 50
    assert theirs <= set(CALLABLE) | set(REFUSED) | set(WITHIN_GROUP)
