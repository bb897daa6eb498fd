"""Structured Streaming: how long it takes from the row that closes a window to its result."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import functions as f

from benchmarks.child import Spec, case
from benchmarks.measure import Outcome
from benchmarks.nexmark.closing import WINDOW_SECONDS, waits, window_ends
from benchmarks.nexmark.structured import streams
from benchmarks.structured import session, start


def measure(spec: Spec) -> Outcome:
    """Run to the end of the input, or until time is up."""
    started = time.perf_counter()
    bids = streams(session(spec), Path(spec.data))("bid")
    windows = f.window("at", f"{WINDOW_SECONDS} seconds")
    counts = bids.groupBy(windows, "auction").agg(f.count("*").alias("n"), f.max("price"))
    rows = counts.select("auction", f.col("window.end").alias("window_end"), "n", "max(price)")
    output = Path(spec.work) / "out"
    writer = rows.writeStream.outputMode("append").format("parquet").option("path", str(output))
    query = start(writer, Path(spec.work))
    cut = not query.awaitTermination(math.ceil(spec.seconds))
    if cut:
        query.stop()
    progress: list[Any] = list(query.recentProgress)
    began = {batch["batchId"] + 1: _seconds(batch) for batch in progress if batch["numInputRows"]}
    ended = {
        batch["batchId"]: _seconds(batch) + batch["durationMs"]["triggerExecution"] / 1000
        for batch in progress
    }
    closed = {number: window_ends(files) for number, files in _published(output).items()}
    return Outcome(waits(closed, began, ended), time.perf_counter() - started, cut)


def _seconds(batch: Any) -> float:  # noqa: ANN401 (a dictionary of Spark's)
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def _published(output: Path) -> dict[int, list[Path]]:
    """The files of each batch, by the log of the file sink: every tenth entry repeats all files."""
    logs = {int(log.name.split(".")[0]): log for log in (output / "_spark_metadata").glob("[0-9]*")}
    found: dict[int, list[Path]] = {}
    seen: set[str] = set()
    for batch, log in sorted(logs.items()):
        paths = [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
        found[batch] = [Path(urlparse(path).path) for path in paths if path not in seen]
        seen.update(paths)
    return found


if __name__ == "__main__":
    case(measure)
