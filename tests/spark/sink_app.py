"""The pipeline that the sinks' kill tests kill: files that Spark writes, and a callback.

Run as a process of its own: ``python sink_app.py BASE [POINT:STEP]``. At the named point it says so
in a file and waits to be killed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import anabranch as ab

STEPS = 10
ROWS_PER_STEP = 6
SPARK = {
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
}


def numbers(partition: int, start: int, end: int) -> dict[str, list[Any]]:
    """Row n is the same whenever it is asked for."""
    return {"n": list(range(start, end)), "day": [f"d{n % 3}" for n in range(start, end)]}


class Recorder:
    """A callback that writes rows and step in one transaction, and notes every call."""

    def __init__(self, base: Path) -> None:
        """Nothing is opened yet."""
        self._base = base

    def __call__(self, df: Any, step: int) -> None:
        """Add the step, unless it is there."""
        rows = [(step, row.n) for row in df.collect()]
        with (self._base / "calls.txt").open("a") as calls:
            calls.write(f"{step}\n")
        database = sqlite3.connect(self._base / "rows.db")
        with database:
            database.execute("create table if not exists steps (step integer primary key)")
            database.execute("create table if not exists rows (step integer, n integer)")
            if not database.execute("select 1 from steps where step = ?", (step,)).fetchone():
                database.execute("insert into steps values (?)", (step,))
                database.executemany("insert into rows values (?, ?)", rows)
        database.close()


def build(base: Path) -> ab.Dataflow:
    """Two sinks after one source."""
    source = ab.GeneratorSource(
        numbers, "n bigint, day string", rows_per_step=ROWS_PER_STEP, rows=STEPS * ROWS_PER_STEP
    )
    flow = ab.Dataflow("sinks")
    rows = flow.source("numbers", source)
    rows.sink("files", ab.FileSink(base / "files", "csv", partition_by="day"))
    rows.sink("calls", ab.CallbackSink(Recorder(base)))
    return flow


def main() -> None:
    """Run to the end, or to the point where the test kills this process."""
    base = Path(sys.argv[1])
    stop_at = sys.argv[2] if len(sys.argv) > 2 else ""

    def reached(point: str, step: int) -> None:
        if f"{point}:{step}" == stop_at:
            (base / "reached").write_text(stop_at)
            time.sleep(3600)

    pipeline = ab.run(
        build(base),
        directory=base / "state",
        workers=2,
        bins=16,
        master="local[2]",
        spark_conf=SPARK,
        reached=reached,
    )
    status = pipeline.wait()
    (base / "result.json").write_text(json.dumps({"step": status.step, "weights": weights()}))


def weights() -> dict[str, int]:
    """The pools that Spark shares itself out to, with their weights."""
    context = SparkSession.builder.getOrCreate().sparkContext._jsc.sc()
    names = ("default", "publishing")
    return {name: context.getPoolForName(name).get().weight() for name in names}


if __name__ == "__main__":
    main()
