"""Nexmark: every query gives over a stream what its oracle gives over all events at once."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from examples.nexmark.events import event_source, nexmark
from examples.nexmark.generator import Nexmark
from tests.examples.nexmark_oracle import expected, load_events
from tests.examples.nexmark_results import assert_equal
from tests.spark.running import completed

pytestmark = pytest.mark.spark

READY = ("q00", "q01", "q02", "q15", "q16", "q17")
SECOND = 1_000_000
MIDNIGHT = 1_436_918_400 * SECOND
EVENTS = 50_000
SETTINGS = Nexmark(seed=25, rate=1_000, base=MIDNIGHT - 20 * SECOND)
"""50 seconds of two days, so that there are several windows, and people who rest for ten."""


@pytest.fixture(scope="module")
def oracle(_started_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    spark = _started_spark.newSession()
    load_events(spark, tmp_path_factory.mktemp("nexmark"), SETTINGS, EVENTS)
    return spark


@pytest.mark.parametrize("query", READY)
def test_a_query_gives_what_the_oracle_gives(
    query: str, oracle: SparkSession, spark: SparkSession, tmp_path: Path
) -> None:
    flow = ab.Dataflow(query)
    # The second partition is two and a half seconds ahead of the first.
    source = event_source(EVENTS, SETTINGS, partitions=2, span=2_500, events_per_step=10_000)
    program = importlib.import_module(f"examples.nexmark.{query}")
    program.query(nexmark(flow, source)).sink("out", ab.FileSink(tmp_path / "out", "parquet"))
    completed(flow, tmp_path / "state")
    assert_equal(query, tmp_path / "out", expected(oracle, query))
