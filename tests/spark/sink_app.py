"""The pipeline that the sinks' kill tests kill: files that Spark writes, and a callback."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark import killable

STEPS = 10
ROWS_PER_STEP = 6


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


if __name__ == "__main__":
    killable.run(build, lambda pipeline: {"weights": killable.weights("default", "publishing")})
