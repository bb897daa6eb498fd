"""The HTTP API over a real coordinator with a real Spark node: every call, by what comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.coordinator.driver.journal_reader import read_journal_view
from anabranch.errors import CorruptRun
from anabranch.http.app import Application
from anabranch.http.client import Client
from anabranch.http.schemas import QueryRequest
from anabranch.http.server import Server
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.records.profiles import ProfileKind, ProfileRequest
from tests.http.documented import bounded, call, schema
from tests.http.raw import Site, until

pytestmark = pytest.mark.spark

ROWS_PER_STEP = 12


def numbers(partition: int, start: int, end: int) -> dict[str, Any]:
    """Row i holds i."""
    return {"i": range(start, end)}


def sums() -> ab.Dataflow:
    flow = ab.Dataflow("sums")
    source = flow.source(
        "numbers", ab.GeneratorSource(numbers, "i bigint", rows_per_step=ROWS_PER_STEP)
    )
    keyed = source.with_columns(k="i % 3").key_distribute("by-k", "k")
    keyed.aggregate("totals", n="count(*)", total="sum(i)").sink("out", ab.MemorySink())
    return flow


@contextmanager
def served(directory: Path) -> Iterator[Site]:
    """An endless pipeline that has made a few steps, and its server."""
    pipeline = ab.run(
        sums(), directory=directory, settings=ab.Settings(target_latency_seconds=None)
    )
    with Server(Application(pipeline._driver, None)) as server:
        until(lambda: pipeline.status().step >= 3, seconds=60)
        yield Site(server.address)
        pipeline.shutdown()


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    """A pipeline for one test."""
    with served(tmp_path) as found:
        yield found


@pytest.fixture(scope="module", params=["sums"])
def shared(
    _started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A pipeline for all tests that do not end it.

    It has a parameter because schemathesis names the test of a call after the call only where
    there is one: without it all have the same name, and one of them is run.
    """
    with served(tmp_path_factory.mktemp("shared")) as found:
        yield found


def test_a_life_over_http(site: Site) -> None:
    client = Client(site.url)
    info = site.get("/metadata").json()
    assert (info["dataflow"], info["sources"], info["bins"]) == ("sums", ["numbers"], 256)
    assert [region["region"] for region in info["regions"]] == ["by-k"]
    assert [shape["operator"] for shape in info["regions"][0]["states"]] == ["totals"]

    assert client.pause().done
    until(lambda: client.status().phase == "paused")
    step = client.status().step
    found = client.query(QueryRequest("select sum(n) as n, sum(total) as total from totals"))
    rows = ROWS_PER_STEP * step
    assert json.loads(found)["rows"] == [[rows, rows * (rows - 1) // 2]]
    assert client.status().rows == rows

    kept = client.checkpoint()
    assert (kept.done, kept.step) == (True, step)
    assert step in [one.step for one in client.checkpoints().checkpoints]
    assert client.start().done
    assert f'"rows":{ROWS_PER_STEP},' in site.get("/events?most=1").body.decode()
    until(lambda: client.status().step >= step + 2)

    loaded = client.load(step, accept_duplicates=True)
    assert (loaded.step, loaded.status.branch) == (step, 1)
    until(lambda: client.status().step > step)
    ended = client.shutdown(seconds=120)
    assert (ended.done, ended.status.phase) == (True, "stopped")
    site.post("/start").problem(409, "operation.refused")


def test_a_damaged_checkpoint_is_not_loaded_and_the_pipeline_goes_on(
    site: Site, tmp_path: Path
) -> None:
    client = Client(site.url)
    step = client.checkpoint().step
    assert step is not None
    until(lambda: client.status().step >= step + 2)
    client.pause()
    until(lambda: client.status().phase == "paused")
    checkpoint = read_journal_view(Journal(FileDirectory(tmp_path / "journal"))).checkpoints[-1]
    damaged = tmp_path / checkpoint.states[0].runs[0].run.name
    whole = damaged.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    replace_file(damaged, bytes(flipped))
    with pytest.raises(CorruptRun, match=f"Checkpoint {step} cannot be loaded") as raised:
        client.load(step, accept_duplicates=True)
    assert str(damaged) in str(raised.value)
    replace_file(damaged, whole)
    assert client.status().branch == 0
    reached = client.status().step
    client.start()
    until(lambda: client.status().step > reached)


def replace_file(path: Path, data: bytes) -> None:
    """Put another file in its place: the one that is there may be mapped."""
    aside = path.with_suffix(".aside")
    aside.write_bytes(data)
    aside.replace(path)


def test_metrics_and_stats_agree_with_the_status(site: Site) -> None:
    site.post("/pause")
    until(lambda: bool(site.get("/status").json()["phase"] == "paused"))
    step = site.get("/status").json()["step"]
    text = site.get("/metrics").body.decode()
    assert re.search(rf"^anabranch_step {step}\.0$", text, re.MULTILINE)
    assert re.search(rf"^anabranch_rows_total {ROWS_PER_STEP * step}\.0$", text, re.MULTILINE)
    keys = re.findall(r"^anabranch_state_keys\{.*worker=\"\d+\"\} (\d)\.0$", text, re.MULTILINE)
    assert sum(map(int, keys)) == 3
    parts = set(
        re.findall(r'^anabranch_step_part_seconds_count\{part="(.*)"\}', text, re.MULTILINE)
    )
    stats = site.get("/stats").json()
    assert parts == set(stats["parts"])
    assert parts
    assert (stats["step"], stats["rows"], stats["keys"]) == (step, ROWS_PER_STEP * step, 3)
    assert [one["rows"] for one in stats["recent"]] == [ROWS_PER_STEP] * len(stats["recent"])
    assert stats["recent"][-1]["step"] == step


def test_queries_are_restricted_over_http_too(shared: Site) -> None:
    for sql, code in (
        ("create table t as select 1", "query.not_a_query"),
        ("select 1; select 2", "query.several_statements"),
        ("select * from text.`secret`", "query.forbidden_relation"),
        ("select * from nothing", "query.unknown_operator"),
    ):
        assert shared.post("/query", {"sql": sql}).json()["code"] == code
    reply = shared.post("/query", {"sql": "select k, n from totals", "format": "arrow"})
    table = pa.ipc.open_stream(reply.body).read_all()
    assert sorted(table.column("k").to_pylist()) == [0, 1, 2]
    assert json.loads(reply.headers["x-anabranch-step"]) >= 3


def test_a_worker_is_looked_at_while_it_works(shared: Site) -> None:
    client = Client(shared.url)
    found = client.profile(ProfileRequest(ProfileKind.TIME, 0, "by-k"), 60)
    (time,) = found.profiles
    assert (time.group, time.worker) == ("by-k", 0)
    files = {Path(each.file).parts[-3:] for each in time.functions if each.file}
    assert ("anabranch", "task", "region_task.py") in files
    (heap,) = client.profile(ProfileRequest(ProfileKind.HEAP, 1), 60).profiles
    assert heap.memory is not None
    assert heap.memory.resident > 10 << 20
    assert heap.lines
    assert found.step is not None
    assert client.status().step > found.step


few = settings(bounded, max_examples=5)


@schema.exclude(path=["/shutdown", "/query"]).parametrize()
@few
def test_every_call_answers_as_documented(case: Any, shared: Site) -> None:
    call(case, shared)


@pytest.mark.soak
@schema.include(path="/query").parametrize()
@bounded
def test_queries_answer_as_documented(case: Any, shared: Site) -> None:
    call(case, shared)


@schema.include(path="/shutdown").parametrize()
@few
def test_the_end_answers_as_documented(case: Any, site: Site) -> None:
    call(case, site)
