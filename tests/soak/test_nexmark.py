"""Nexmark at length: a million events, and queries that are rescaled and killed."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from examples.nexmark.events import event_source, nexmark
from examples.nexmark.generator import Nexmark
from tests.examples.nexmark_oracle import QUERIES, expected, load_events
from tests.examples.nexmark_results import assert_equal
from tests.soak import nexmark_app
from tests.spark.killable import ROOT
from tests.spark.running import completed

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

MILLION = Nexmark(seed=1, rate=10_000)
RESCALED = ("q03", "q04", "q05", "q08", "q09", "q11", "q15", "q18")


@pytest.fixture(scope="module")
def million(_started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    spark = _started_spark.newSession()
    load_events(spark, tmp_path_factory.mktemp("million"), MILLION, 1_000_000)
    return spark


@pytest.fixture(scope="module")
def oracle(_started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    spark = _started_spark.newSession()
    events = tmp_path_factory.mktemp("rescaled")
    load_events(spark, events, nexmark_app.SETTINGS, nexmark_app.EVENTS)
    return spark


@pytest.mark.parametrize("query", QUERIES)
def test_a_million_events_give_what_the_oracle_gives(
    query: str, million: SparkSession, spark: SparkSession, tmp_path: Path
) -> None:
    flow = ab.Dataflow(query)
    source = event_source(1_000_000, MILLION, partitions=4, span=10_000)
    program = importlib.import_module(f"examples.nexmark.{query}")
    program.query(nexmark(flow, source)).sink("out", ab.FileSink(tmp_path / "out", "parquet"))
    completed(flow, tmp_path / "state", bins=64, patience=600)
    assert_equal(query, tmp_path / "out", expected(million, query))


@pytest.mark.parametrize("query", RESCALED)
def test_rescaled_and_killed_a_query_gives_what_the_oracle_gives(
    query: str, oracle: SparkSession, tmp_path: Path
) -> None:
    seed = int(os.environ.get("ANABRANCH_SEED", str(random.randrange(10**6))))
    first = run(tmp_path, query, seed)
    assert first.returncode == -signal.SIGKILL, first.stdout
    second = run(tmp_path, query, seed)
    assert second.returncode == 0, second.stdout
    ended = json.loads((tmp_path / "ended").read_text())
    print(f"{query}, seed {seed}: killed at {(tmp_path / 'killed').read_text()}; {ended}")
    assert [outcome for outcome, _ in ended["rescales"]] == ["settled", "settled"]
    assert set(ended["workers"]) == {1}
    assert_equal(query, tmp_path / "out", expected(oracle, query))


def run(base: Path, query: str, seed: int) -> subprocess.CompletedProcess[str]:
    """Run the query in a process group of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.soak.nexmark_app", str(base), query, str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
        start_new_session=True,
    )
