"""Small steps without end: sums by a thousand keys, into files and into a sink that is slow."""

from __future__ import annotations

import os
import time
from typing import Any

import anabranch as ab

SECONDS = 0.3
"""How long the slow sink takes for a step: longer than a step takes."""


def numbers(partition: int, start: int, end: int) -> dict[str, range]:
    """Row i holds i."""
    return {"i": range(start, end)}


def slow(rows: Any, step: int) -> None:
    """Take a while, whatever there is."""
    time.sleep(SECONDS)


flow = ab.Dataflow("restless")
_rows = flow.source("numbers", ab.GeneratorSource(numbers, "i bigint", rows_per_step=200))
_keyed = _rows.with_columns(k="i % 1000").key_distribute("by-k", "k")
_totals = _keyed.aggregate("totals", n="count(*)", total="sum(i)")
_totals.sink("out", ab.FileSink(os.environ.get("RESTLESS_OUT", "out"), format="parquet"))
_totals.sink("slow", ab.CallbackSink(slow))
