"""Closes many windows in one step, and prints the memory of the process at its peak.

Arguments: the kind of windows, how many, and a directory. State is filled step by step, as a
pipeline would; only the last step moves the frontier.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregate import AggregateColumn, Argument
from anabranch.operators.rows import Rows
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate
from anabranch.records.times import END_OF_TIME
from tests.operators.timed_harness import TimedHarness

KEYS = pa.schema([("k", pa.int64())])
TIME = pa.timestamp("us", tz="UTC")
VALUE = Argument("v", pa.int64(), "v")
COLUMNS = (
    AggregateColumn("n", "count", (), (), pa.int64(), "count(*)"),
    AggregateColumn("total", "sum", (VALUE,), (), pa.int64(), "sum(v)"),
)
OUTPUT = pa.schema(
    [*KEYS, ("window_start", TIME), ("window_end", TIME), ("n", pa.int64()), ("total", pa.int64())]
)
STEP = 200_000
WINDOWS: dict[str, Panes | SessionGap] = {
    "tumbling": Panes(10, 10),
    "sliding": Panes(10, 5),
    "session": SessionGap(10),
}


def rows(first: int, count: int) -> Rows:
    """A row for each of so many keys; all are in windows of their own."""
    keys = np.arange(first, first + count)
    hashes = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Rows(
        pa.table({"v": keys}), hashes, pa.table({"k": keys}), None, keys.astype(np.int64) % 1000
    )


def main(kind: str, count: int, directory: Path) -> None:
    operator = WindowedAggregate("counts", WINDOWS[kind], COLUMNS, KEYS, OUTPUT)
    harness = TimedHarness(operator, operator.shapes, KEYS, directory, checked=False)
    keys = count // 2 if kind == "sliding" else count
    for first in range(0, keys, STEP):
        harness.step(rows(first, min(STEP, keys - first)), 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    output = harness.step(None, END_OF_TIME).output
    seconds = time.perf_counter() - started
    assert output is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"windows": len(output), "before": before, "peak": peak, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
