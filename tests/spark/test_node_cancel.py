"""A step that is stuck in a task is cancelled, and its plan runs again; on Spark, inline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import (
    CancelOrder,
    CommitOrder,
    InputLimit,
    NodeReport,
    Open,
    OpenOrder,
    Output,
    StepOrder,
)
from anabranch.records.plan import Plan
from anabranch.rescale.assignments import equal_shares
from anabranch.run import build_node

pytestmark = pytest.mark.spark

BINS = 8
PATIENCE = 120.0


def until(node: ThreadedNode, wanted: Any) -> NodeReport:
    seen, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        report = node.report(1, seen, 5)
        if wanted(report):
            return report
        seen = report.version
    raise AssertionError(f"the node never said so: {report}")


def test_a_stuck_step_is_cancelled_and_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    begun, free = tmp_path / "begun", tmp_path / "free"

    def count(key: Any, row: Any, seen: int | None) -> tuple[Any, int]:
        begun.touch()
        end = time.monotonic() + PATIENCE
        while not free.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return (key.k, (seen or 0) + 1), (seen or 0) + 1

    sink = ab.MemorySink()
    flow = ab.Dataflow("stuck")
    (
        flow.source("rows", ab.ScriptedSource("k string", [[("a",), ("b",), ("a",)], ab.EOF]))
        .key_distribute("by-k", "k")
        .stateful_map("count", count, state="n bigint", output="k string, n bigint")
        .sink("counts", sink)
    )
    node = build_node(flow, directory=tmp_path / "state", bins=BINS)
    try:
        node.order(
            1,
            OpenOrder(
                number=1,
                pipeline="stuck",
                step=0,
                clock_ns=0,
                states=None,
                positions=(),
                pending=(),
                outputs=(),
                published={},
                placement=(),
                limit=InputLimit(),
            ),
        )
        until(node, lambda report: report.offer is not None and report.offer.rows)
        assert node.report(1, 0, 0).application == spark.sparkContext.applicationId
        inputs = node.take(1, 1)
        placement = equal_shares(["by-k"], BINS, 2, ())
        node.order(1, StepOrder(Plan(1, 0, 1, "code", inputs, placement, 2)))
        while not begun.exists():
            time.sleep(0.05)
        node.order(1, CancelOrder(1))
        report = until(node, lambda report: report.failed_step is not None)
        assert report.failed_step is not None
        assert report.failed_step.failure.code == "step.cancelled"
        assert report.state == Open(0)
        free.touch()
        node.order(1, StepOrder(Plan(1, 1, 1, "code", inputs, placement, 2)))
        report = until(node, lambda report: report.done or report.failed_step)
        assert report.failed_step is None
        result = node.result(1, 1, 1)
        assert result.rows == 3
        node.order(1, CommitOrder(1, Output(1, result.staged), inputs, InputLimit()))
        until(node, lambda report: report.published == {"counts": 1})
    finally:
        free.touch()
        node.shut()
    assert sorted(tuple(row.values()) for row in sink.rows()) == [("a", 1), ("a", 2), ("b", 1)]
