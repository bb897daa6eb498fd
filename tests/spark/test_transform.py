"""``transform`` on a real Spark: the user's Spark code inside a step, against plain Python."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from tests.spark.running import bag, completed, failure, jobs
from tests.spark.test_breadth import ORDERS, got, pages, remember, remembered, write_pages

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FEW_PARTITIONS = {"spark.sql.shuffle.partitions": "3"}
CITIES: list[tuple[str | None, str]] = [("ann", "Aachen"), ("bob", "Bonn"), ("bob", "Berlin")]


def files(directory: Path, step: int = 2) -> ab.FileSource:
    return ab.FileSource(directory, "json", ORDERS, watch=False, max_files_per_step=step)


def everything(given: list[Any]) -> list[Any]:
    return [row for page in given for row in page]


def with_city(df: DataFrame) -> DataFrame:
    cities = df.sparkSession.createDataFrame(CITIES, "customer string, city string")
    return df.join(cities, "customer", "left")


def joined(rows: list[Any]) -> list[Any]:
    found = []
    for customer, amount in rows:
        cities: list[str | None] = [city for name, city in CITIES if name == customer]
        found += [(customer, amount, city) for city in cities or [None]]
    return found


def halves(df: DataFrame) -> DataFrame:
    """Each row twice, as halves and as it was; rows that cannot be told apart stay apart."""
    parts = F.explode(F.array(F.expr("amount div 2"), F.col("amount"))).alias("amount")
    return df.select("customer", parts, "_ord")


def content_order(rows: list[Any], spark: SparkSession) -> list[Any]:
    """The rows that ``halves`` gives, with Spark's own hash as the order of each pair."""
    texts = {
        (customer, value): None for customer, amount in rows for value in (int(amount / 2), amount)
    }
    asked = spark.createDataFrame(list(texts), "customer string, amount bigint")
    hashed = asked.select(
        "customer",
        "amount",
        F.expr("xxhash64(customer is null, customer, amount is null, amount)").alias("h"),
    )
    number = {(row.customer, row.amount): row.h for row in hashed.collect()}
    found = []
    for customer, amount in rows:
        pair = [(customer, int(amount / 2)), (customer, amount)]
        found += sorted(pair, key=lambda row: number[row])
    return found


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kind", ["files", "script", "batches"])
def test_rows_that_keep_their_place_are_in_one_order_on_any_number_of_workers(
    tmp_path: Path, workers: int, kind: str, spark: SparkSession
) -> None:
    given = pages(11, 3, 30)
    write_pages(tmp_path / "in", given)
    source: Any = ab.ScriptedSource(ORDERS, [*given, ab.EOF])
    if kind == "files":
        source = files(tmp_path / "in")
    out, raw = ab.MemorySink(), ab.MemorySink()
    flow = ab.Dataflow("halves")
    rows = flow.source("orders", source).where("amount > 0")
    rows.sink("raw", raw)
    if kind == "batches":
        rows = rows.map_batches("same", lambda table: table, output=ORDERS)
    rows.transform("halve", halves).where("amount > 1").key_distribute(
        "by-customer", "customer"
    ).stateful_map("remember", remember, output="customer string, seen string").sink("out", out)
    completed(flow, tmp_path / "state", workers=workers, spark_conf=FEW_PARTITIONS)
    positive = [row for row in everything(given) if row[1] > 0]
    assert bag(got(raw)) == bag(positive)
    wanted = [row for row in content_order(positive, spark) if row[1] > 1]
    assert bag(got(out)) == bag(remembered(wanted))


def test_a_join_with_a_static_table_feeds_a_sink_a_count_and_another_transform(
    tmp_path: Path, spark: SparkSession
) -> None:
    given = pages(12, 3, 30)
    write_pages(tmp_path / "in", given)
    outputs = {name: ab.MemorySink() for name in ("joined", "counts", "upper")}
    countries = spark.createDataFrame(
        [("Bonn", "de"), ("Aachen", "de")], "city string, land string"
    )
    flow = ab.Dataflow("joins")
    with_cities = flow.source("orders", files(tmp_path / "in", 1)).transform("cities", with_city)
    with_cities.select("customer", "amount", "city").sink("joined", outputs["joined"])
    with_cities.transform(
        # A DataFrame from outside of the function: it stays on the driver.
        "lands",
        lambda df: df.drop("_ord").join(countries, "city").withColumn("land", F.upper("land")),
    ).select("city", "land", "amount").sink("upper", outputs["upper"])
    with_cities.key_distribute("by-city", "city").aggregate("n", n="count(*)").sink(
        "counts", outputs["counts"]
    )
    pipeline = completed(flow, tmp_path / "state", workers=2, spark_conf=FEW_PARTITIONS)
    wanted = joined(everything(given))
    assert bag(got(outputs["joined"])) == bag(wanted)
    assert bag(got(outputs["upper"])) == bag(
        (city, "DE", amount) for _, amount, city in wanted if city in ("Bonn", "Aachen")
    )
    kept = pipeline.state_table("n").to_pylist()
    assert {row["city"]: row["n"] for row in kept} == Counter(city for *_, city in wanted)
    assert pipeline.status().step == 3


class Marks:
    """Leaves a file for every call of a function in a task."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def __call__(self, table: pa.Table) -> pa.Table:
        (self.directory / uuid.uuid4().hex).touch()
        return table

    def count(self) -> int:
        return len(os.listdir(self.directory))


@pytest.mark.parametrize("workers", [1, 3])
def test_behind_a_region_tasks_run_once_and_a_step_is_one_job(
    tmp_path: Path, workers: int, spark: SparkSession
) -> None:
    given = pages(13, 2, 30)
    write_pages(tmp_path / "in", given)
    marks = Marks(tmp_path / "marks")
    outputs = {name: ab.MemorySink() for name in ("seen", "plain", "first", "second")}
    flow = ab.Dataflow("behind")
    rows = flow.source("orders", files(tmp_path / "in", 2))
    seen = (
        rows.key_distribute("by-customer", "customer")
        .stateful_map("remember", remember, output="customer string, seen string")
        .map_batches("mark", marks, output="customer string, seen string")
    )
    seen.sink("seen", outputs["seen"])
    seen.where("length(seen) > 8").sink("plain", outputs["plain"])

    def last(df: DataFrame) -> DataFrame:
        number = F.expr("cast(element_at(split(seen, ','), -1) as bigint)")
        return df.select("customer", number.alias("amount"), "_ord")

    amounts = seen.transform("last", last)
    amounts.sink("first", outputs["first"])
    # Rows of a source and of tasks together, in one DataFrame.
    rows.union(amounts).transform(
        "sums", lambda df: df.groupBy("customer").agg(F.sum("amount").alias("amount"))
    ).sink("second", outputs["second"])
    amounts.key_distribute("again", "customer").stateful_map(
        "remember-again", remember, output="customer string, seen string"
    ).select("seen").sink("lines", ab.MemorySink())
    before = jobs(spark)
    pipeline = completed(flow, tmp_path / "state", workers=workers, spark_conf=FEW_PARTITIONS)
    assert jobs(spark) - before == pipeline.status().step == 1
    every = everything(given)
    wanted = remembered(every)
    assert bag(got(outputs["seen"])) == bag(wanted)
    assert bag(got(outputs["plain"])) == bag(row for row in wanted if len(row[1]) > 8)
    assert bag(got(outputs["first"])) == bag(every)
    sums: Counter[Any] = Counter()
    for customer, amount in every:
        sums[customer] += 2 * amount
    assert bag(got(outputs["second"])) == bag(sums.items())
    again = pipeline.state_table("remember-again").num_rows
    assert again == len({customer for customer, _ in every})
    # One call for each worker that had rows, and no second one for the transforms.
    assert 1 <= marks.count() <= workers


def test_a_broadcast_join_is_the_step_job_and_one_of_its_own(
    tmp_path: Path, spark: SparkSession
) -> None:
    write_pages(tmp_path / "in", pages(14, 2, 10))
    out = ab.MemorySink()
    flow = ab.Dataflow("broadcast")
    cities = spark.createDataFrame(CITIES, "customer string, city string").coalesce(1)
    flow.source("orders", files(tmp_path / "in", 2)).transform(
        "cities", lambda df: df.join(F.broadcast(cities), "customer")
    ).sink("out", out)
    before = jobs(spark)
    assert completed(flow, tmp_path / "state", workers=2).status().step == 1
    assert jobs(spark) - before == 2
    assert bag(row[0] for row in got(out)) == bag(
        row[0] for row in joined(everything(pages(14, 2, 10))) if row[2] is not None
    )


def outer(df: DataFrame) -> DataFrame:
    others = df.sparkSession.createDataFrame([("zoe",)], "customer string")
    return df.join(others, "customer", "full")


def fails_in_steps(df: DataFrame) -> DataFrame:
    if df._jdf.queryExecution().analyzed().getClass().getSimpleName() != "LocalRelation":
        raise LookupError("nothing here")
    return df


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (outer, ab.AnabranchError, ["transform t: a row has NULL in _ord"]),
        (fails_in_steps, ab.errors.UserFunctionFailed, ["LookupError: nothing here", "operator t"]),
    ],
)
def test_what_goes_wrong_in_a_step_names_the_transform(
    tmp_path: Path, function: Any, kind: Any, words: list[str]
) -> None:
    write_pages(tmp_path / "in", pages(15, 1, 5))
    flow = ab.Dataflow("wrong")
    flow.source("orders", files(tmp_path / "in")).transform("t", function).key_distribute(
        "r", "customer"
    ).stateful_map("m", remember, output="customer string, seen string").sink("s", ab.MemorySink())
    error = failure(flow, tmp_path / "state", spark_conf=FEW_PARTITIONS)
    assert isinstance(error, kind)
    for word in words:
        assert word in str(error)
