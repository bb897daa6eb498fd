"""Pathway: count and sum per key over the batches of a directory, until time is up.

Pathway reads no Parquet from plain files: the same rows are written as CSV before the clock
starts, and its own engine reads them. Its progress is seen from beside: a count of the rows that
came in by engine time, and the moment at which a sample of the result of that time was complete.
The result itself goes nowhere. Recovery is its log of the input, from which the state is computed
again; snapshots of the state need a licence key.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pathway as pw
import pyarrow.csv
import pyarrow.parquet as pq

SAMPLE = 64


class Row(pw.Schema):  # type: ignore[misc]
    """A row of the input."""

    key: int
    amount: int


class Progress:
    """When how many rows were done. Told by the engine's threads, and by a timer."""

    def __init__(self, rows: int, seconds: float) -> None:
        """Stop after so many rows or seconds, whichever is first."""
        self._rows = rows
        self._seconds = seconds
        self._arrived: dict[int, int] = {}
        self._complete = 0
        self._lock = threading.Lock()
        self._started = 0.0
        self.marks: list[tuple[float, int]] = []

    def start(self) -> None:
        """Begin to count time."""
        self._started = time.perf_counter()
        self.marks.append((0.0, 0))
        threading.Timer(self._seconds, self.finish).start()

    def arrived(self, key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        """So many rows have come in by this engine time."""
        if is_addition:
            with self._lock:
                self._arrived[time] = row["rows"]
            self._mark()

    def completed(self, engine_time: int) -> None:
        """The result is complete up to this engine time."""
        self._complete = max(self._complete, engine_time)
        self._mark()

    def _mark(self) -> None:
        with self._lock:
            done = max((n for at, n in self._arrived.items() if at <= self._complete), default=0)
            if done > self.marks[-1][1]:
                self.marks.append((time.perf_counter() - self._started, done))
        if done >= self._rows:
            self.finish()

    def finish(self) -> None:
        """Write what was measured and end: an engine that watches a directory never does."""
        with self._lock:
            outcome = {
                "batches": slices(self.marks),
                "seconds": self.marks[-1][0],
                "cut": self.marks[-1][1] < self._rows,
                "facts": {"version": pw.__version__},
            }
            Path(SPEC["result"]).write_text(json.dumps(outcome), encoding="utf-8")
            os._exit(0)


def slices(marks: list[tuple[float, int]]) -> list[dict[str, float]]:
    """What was done between each two marks."""
    return [
        {"rows": rows - had, "seconds": at - since} for (since, had), (at, rows) in pairwise(marks)
    ]


def write_csv(source: Path, target: Path) -> int:
    """Write the rows as CSV; gives their number."""
    target.mkdir(parents=True)
    rows = 0
    for path in sorted(source.glob("*.parquet")):
        table = pq.read_table(path, columns=["key", "amount"])
        pyarrow.csv.write_csv(table, target / f"{path.stem}.csv")
        rows += table.num_rows
    return rows


def main() -> None:
    """Build the dataflow and run it."""
    work = Path(SPEC["work"])
    rows = write_csv(Path(SPEC["data"]), work / "csv")
    progress = Progress(rows, SPEC["seconds"])
    table = pw.io.csv.read(
        str(work / "csv"), schema=Row, mode="streaming", name="rows", autocommit_duration_ms=100
    )
    totals = table.groupby(pw.this.key).reduce(
        pw.this.key, n=pw.reducers.count(), total=pw.reducers.sum(pw.this.amount)
    )
    pw.io.null.write(totals)
    pw.io.subscribe(table.reduce(rows=pw.reducers.count()), progress.arrived)
    sample = totals.filter(pw.this.key % SAMPLE == 0)
    pw.io.subscribe(sample, lambda *_, **__: None, on_time_end=progress.completed)
    persistence = None
    if SPEC["options"]["recovery"]:
        persistence = pw.persistence.Config(
            pw.persistence.Backend.filesystem(str(work / "snapshots")),
            snapshot_interval_ms=10_000,
            persistence_mode=pw.PersistenceMode.PERSISTING,
        )
    progress.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence)


if __name__ == "__main__":
    SPEC = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    main()
