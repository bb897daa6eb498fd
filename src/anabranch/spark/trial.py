"""A tiny job that shows whether Spark runs here."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.session import open_session

ROWS = 1000


def run_trial() -> str:
    """Start Spark, run a shuffle and Python tasks, stop it; report how long that took."""
    began = time.monotonic()
    session = open_session("local[2]", {"spark.driver.memory": "512m"})
    try:
        started = time.monotonic()
        rows = session.range(ROWS).repartition(2).mapInArrow(_double, "id bigint").collect()
        ended = time.monotonic()
        total = sum(row["id"] for row in rows)
        if total != ROWS * (ROWS - 1):
            raise RuntimeError(f"the sum of doubled numbers is {total}")
        return f"{session.version} starts in {started - began:.1f} s, a job {ended - started:.1f} s"
    finally:
        session.stop()


def _double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])
