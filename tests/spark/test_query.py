"""Queries over live state: one committed step each, whatever runs beside them."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import (
    InvalidQuery,
    MissingRun,
    QueryFailed,
    QueryTimeout,
    QueryTooLarge,
    UnknownOperator,
)
from anabranch.node.export import export_parquet
from anabranch.task.queries import STEP
from anabranch.task.state_reader import read_snapshot
from tests.spark.running import PATIENCE, bag, commits, completed, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

QUERIES = 60
THREADS = 4
ROWS_PER_STEP = 12


def numbers(partition: int, start: int, end: int) -> dict[str, Any]:
    """Row i holds i."""
    return {"i": range(start, end)}


def add(key: Any, row: Any, total: int | None) -> Any:
    return (row.i % 3, row.i), (total or 0) + row.i


def sums(rows: int | None = None) -> ab.Dataflow:
    """The sum of all i by the first operator, their count by the second: both grow every step."""
    flow = ab.Dataflow("sums")
    source = ab.GeneratorSource(numbers, "i bigint", rows_per_step=ROWS_PER_STEP, rows=rows)
    added = (
        flow.source("numbers", source)
        .key_distribute("by-five", five="i % 5")
        .stateful_map("running-total", add, state="total bigint", output="three bigint, i bigint")
    )
    counted = added.key_distribute("by-three", "three").aggregate("counts", n="count(*)")
    counted.sink("out", ab.MemorySink())
    return flow


BOTH = """
    select max(total) as total, max(n) as n from (
        select sum(total) as total, null as n from "running-total"
        union all select null, sum(n) from `counts`
    )
"""

ONE = 'select sum(total) as total from "running-total"'

ENDLESS = """
    select count(*) from range(10000000) a cross join range(10000000) b
    where (a.id * b.id) % 7 = 3
"""


def step_of(table: Any) -> int:
    return int(table.schema.metadata[STEP])


def check_one_step(table: Any) -> int:
    """Sum and count are of the same rows, all those of the steps up to one; gives that step."""
    [row] = table.to_pylist()
    step = step_of(table)
    n = step * ROWS_PER_STEP
    assert (row.get("n", n) or 0) == n
    assert (row["total"] or 0) == n * (n - 1) // 2
    return step


def wait_for_step(pipeline: ab.Pipeline, step: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while pipeline.status().step < step:
        assert time.monotonic() < deadline, pipeline.status()
        pipeline.wait(0.02)


@pytest.fixture(scope="module")
def ended(_started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ab.Pipeline:
    """A pipeline that has ended after five steps; queries still see its state."""
    return completed(sums(rows=5 * ROWS_PER_STEP), tmp_path_factory.mktemp("ended"), workers=3)


# ------------------------------------------------------------------------------- while steps run


@pytest.mark.timeout(900)
def test_each_query_sees_exactly_one_committed_step(tmp_path: Path) -> None:
    # A machine that is busy with other things must not be taken for a query without end; steps
    # that wait a little for more rows leave it something to answer with.
    patient = ab.Settings(
        query_seconds=240, grace_seconds=300, min_rows=10 * ROWS_PER_STEP, max_delay_seconds=1.0
    )
    pipeline = ab.run(sums(), directory=tmp_path, workers=2, bins=16, settings=patient)
    wait_for_step(pipeline, 1)

    def ask(number: int) -> tuple[int, int, int]:
        before = pipeline.status().step
        seen = check_one_step(pipeline.query(BOTH if number % 4 == 0 else ONE))
        return before, seen, pipeline.status().step

    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(ask, range(QUERIES)))
    assert pipeline.shutdown().phase is ab.Phase.STOPPED
    assert all(before <= seen <= after for before, seen, after in answers)
    # They did run beside the steps: many steps were seen, not one again and again.
    assert len({seen for _, seen, _ in answers}) > QUERIES // 40
    assert check_one_step(pipeline.query(BOTH)) == pipeline.status().step


def test_a_query_without_end_is_stopped_and_steps_go_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = ab.run(sums(), directory=tmp_path, workers=2, bins=16)
    wait_for_step(pipeline, 1)
    with pytest.raises(QueryTimeout, match="longer than 3 seconds") as raised:
        pipeline.query(ENDLESS, limit_seconds=3)
    assert raised.value.code == "query.timeout"
    # Its tasks are told to stop; what is asked next has its turn when they have.
    check_one_step(pipeline.query(BOTH))
    wait_for_step(pipeline, pipeline.status().step + 3)
    assert pipeline.shutdown().phase is ab.Phase.STOPPED
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + PATIENCE
    while tracker.getActiveJobsIds():
        assert time.monotonic() < deadline, "a job of the cancelled query still runs"
        time.sleep(0.05)


def test_steps_are_committed_while_a_long_query_runs(tmp_path: Path, spark: SparkSession) -> None:
    patient = ab.Settings(query_seconds=240, grace_seconds=300)
    pipeline = ab.run(sums(), directory=tmp_path, workers=2, bins=16, settings=patient)
    wait_for_step(pipeline, 1)
    active = spark.sparkContext.statusTracker().getActiveJobsIds
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(pipeline.query, ENDLESS)
        long: set[int] = set()
        while not long:
            # A step's job is over when the step is: what stays is the query's.
            before = set(active())
            wait_for_step(pipeline, pipeline.status().step + 1)
            long = before & set(active())
            assert not asked.done(), asked.result()
        wait_for_step(pipeline, pipeline.status().step + 3)
        assert long & set(active())
        assert pipeline.shutdown().phase is ab.Phase.STOPPED
        spark.sparkContext.cancelAllJobs()
        assert isinstance(asked.exception(PATIENCE), QueryFailed)


# ------------------------------------------------------------------------------- what is answered


def test_columns_are_key_state_worker_and_bin(ended: ab.Pipeline) -> None:
    table = ended.query('select * from "running-total" order by five')
    assert table.schema.names == ["five", "total", "_worker", "_bin"]
    by_hand: dict[int, int] = {}
    for i in range(5 * ROWS_PER_STEP):
        by_hand[i % 5] = by_hand.get(i % 5, 0) + i
    assert [(row["five"], row["total"]) for row in table.to_pylist()] == sorted(by_hand.items())
    assert step_of(table) == 5


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*) from counts", [(3,)]),
        ("SELECT Three, N FROM COUNTS WHERE three = 1", [(1, 20)]),
        ("with c as (select sum(n) as n from counts) select n from c", [(60,)]),
        ("from counts select sum(n)", [(60,)]),
        ("values (1, 'a')", [(1, "a")]),
        ("table counts order by three limit 1 offset 1", None),
        ("select 1 as a, 2 as a", [(1, 2)]),
        ("select a.three, b.n from counts a join counts b using (three) where a.three = 2", None),
        ("select x from counts lateral view explode(array(1)) t as x limit 1", [(1,)]),
        ("select sum(id) from range(5)", [(10,)]),
        ("select col from explode(array(7, 8)) where col > 7", [(8,)]),
        ("select max(n) over (partition by three) from counts where three = 0", [(20,)]),
        ("select sum(n) as s from counts having s > 0", [(60,)]),
        ("select 'a;b'", [("a;b",)]),
        ("select n from counts where three in (select five from `running-total`) limit 1", None),
        ("select transform(array(1, 2), x -> x + 1)[1]", [(3,)]),
        ("select typeof(total) from `running-total` limit 1;", [("bigint",)]),
        (
            "with recursive t(n) as (select 1 union all select n + 1 from t where n < 4)"
            " select sum(n) from t",
            [(10,)],
        ),
        ("select null as nothing, current_date() is not null as now", [(None, True)]),
    ],
)
def test_queries_of_many_shapes_are_answered(
    ended: ab.Pipeline, sql: str, rows: list[tuple[Any, ...]] | None
) -> None:
    found = rows_of(ended.query(sql))
    if rows is None:
        assert found
    else:
        assert found == rows


def test_untyped_state_is_json(tmp_path: Path) -> None:
    def remember(key: Any, row: Any, seen: Any) -> Any:
        return None, {"seen": [*(seen["seen"] if seen else []), row.n], "key": key.k}

    flow = ab.Dataflow("json")
    source = ab.ScriptedSource("k string, n bigint", [[("a", 1), ("b", 2)], [("a", 3)], ab.EOF])
    flow.source("in", source).key_distribute("by-k", "k").stateful_map(
        "seen", remember, state=None, output="k string"
    ).sink("out", ab.MemorySink())
    pipeline = completed(flow, tmp_path)
    table = pipeline.query(
        "select k, state, get_json_object(state, '$.seen[1]') as second from seen order by k"
    )
    assert [(k, json.loads(state), second) for k, state, second in rows_of(table)] == [
        ("a", {"seen": [1, 3], "key": "a"}, "3"),
        ("b", {"seen": [2], "key": "b"}, None),
    ]
    assert commits(tmp_path)[-1].states[0].shape.packed == ("state",)


def test_state_is_a_dataframe_of_the_same_step_however_late_it_is_used(
    tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = ab.run(sums(), directory=tmp_path, workers=2, bins=16)
    wait_for_step(pipeline, 2)
    before = spark.getActiveSession()
    frame = pipeline.state("counts")
    assert spark.getActiveSession() is before or before is None
    at = pipeline.query(BOTH)
    step = pipeline.status().step
    wait_for_step(pipeline, step + 2)
    n = sum(row["n"] for row in frame.collect())
    assert n % ROWS_PER_STEP == 0
    assert 2 * ROWS_PER_STEP <= n <= step_of(at) * ROWS_PER_STEP
    pipeline.shutdown()
    table = pipeline.state("counts").toArrow()
    kept = pipeline.state_table("counts")
    assert bag(rows_of(table.select(kept.schema.names))) == bag(rows_of(kept))
    assert table.schema.names == [*kept.schema.names, "_worker", "_bin"]
    with pytest.raises(UnknownOperator, match="There are: counts, running-total"):
        pipeline.state("count")


def test_an_operator_without_state_is_an_empty_table(tmp_path: Path) -> None:
    pipeline = completed(sums(rows=0), tmp_path)
    table = pipeline.query("select * from counts")
    assert (table.schema.names, table.num_rows) == (["three", "n", "_worker", "_bin"], 0)
    assert step_of(table) == 0


def test_a_query_after_a_restart_sees_the_same(tmp_path: Path) -> None:
    first = completed(sums(rows=3 * ROWS_PER_STEP), tmp_path, workers=2)
    sql = 'select five, total, _bin from "running-total" order by five'
    then = first.query(sql)
    again = completed(sums(rows=3 * ROWS_PER_STEP), tmp_path, workers=3)
    assert rows_of(again.query(sql)) == rows_of(then)
    assert check_one_step(again.query(BOTH)) == 3


def test_an_export_is_what_a_query_shows(ended: ab.Pipeline, tmp_path: Path) -> None:
    directory = ended._directory
    for operator in ("running-total", "counts"):
        output = tmp_path / f"{operator}.parquet"
        export_parquet(read_snapshot(directory), operator, directory, output)
        shown = ended.query(f'select * from "{operator}"')
        exported = pq.read_table(output)
        assert exported.schema.names == shown.schema.names
        assert bag(rows_of(exported)) == bag(rows_of(shown))
        assert exported.num_rows


# ------------------------------------------------------------------------------------------ limits


def test_too_many_rows_or_bytes_are_refused(ended: ab.Pipeline) -> None:
    assert ended.query("select id from range(100)", limit_rows=100).num_rows == 100
    with pytest.raises(QueryTooLarge, match="more than 100 rows"):
        ended.query("select id from range(101)", limit_rows=100)
    with pytest.raises(QueryTooLarge, match="more than 10,000 bytes"):
        ended.query("select repeat('x', 200) as x from range(100)", limit_bytes=10_000)
    assert ended.query("select repeat('x', 50) as x from range(100)", limit_bytes=10_000).num_rows


def test_the_order_of_a_query_is_kept(ended: ab.Pipeline) -> None:
    table = ended.query("select id from range(50000) order by id desc")
    assert table.column("id").to_pylist() == list(range(49_999, -1, -1))


def test_limits_that_make_no_sense_are_refused(ended: ab.Pipeline) -> None:
    with pytest.raises(ValueError, match="more than query_seconds=60"):
        ended.query("select 1", limit_seconds=61)
    with pytest.raises(ValueError, match="must be positive"):
        ended.query("select 1", limit_rows=-1)
    with pytest.raises(InvalidQuery, match="characters"):
        ended.query("select 1" + " " * 200_000)


def test_without_query_seconds_there_are_no_queries(tmp_path: Path) -> None:
    settings = ab.Settings(grace_seconds=1, query_seconds=0)
    pipeline = completed(sums(rows=ROWS_PER_STEP), tmp_path, settings=settings)
    with pytest.raises(QueryFailed, match="takes no queries"):
        pipeline.query("select 1")
    assert pipeline.state_table("counts").num_rows == 3


def test_an_error_of_the_query_is_its_own(ended: ab.Pipeline) -> None:
    with pytest.raises(QueryFailed, match="DIVIDE_BY_ZERO") as raised:
        ended.query("select n / (n - n) from counts")
    assert "does not affect state or steps" in str(raised.value)


# ----------------------------------------------------------------------------------- lost and gone


def test_a_file_that_is_gone_is_lost_or_expired(tmp_path: Path) -> None:
    # One step: nothing has opened its runs yet, so nothing has them mapped.
    pipeline = completed(sums(rows=ROWS_PER_STEP), tmp_path)
    frame = pipeline.state("counts")
    for listed in commits(tmp_path)[-1].states[1].runs:
        os.unlink(tmp_path / listed.run.name)
    with pytest.raises(PySparkException, match=r"query\.snapshot_expired"):
        frame.collect()
    # The last commit names the file: it is not old, it is lost.
    with pytest.raises(MissingRun, match="the last commit names"):
        pipeline.query("select * from counts")
    assert pipeline.query("select count(*) from `running-total`").num_rows == 1
