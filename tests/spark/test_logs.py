"""A source over a log on a real Spark: gaps, uncounted rows, partitions that become more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.node.test_logs import flow_of, found
from tests.sources.log_source import LogSource
from tests.spark.running import completed

pytestmark = pytest.mark.spark


def test_a_log_is_read_in_order_and_its_new_partitions_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = LogSource(turns=4, partitions=2, grows=(1, 2, 3)), ab.MemorySink()
    pipeline = completed(flow_of(source, sink), tmp_path / "state")
    assert found(sink) == source.rows()
    assert len(pipeline.status().sources[0].partitions) == 5
