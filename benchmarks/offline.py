"""Spark's own way to more state partitions: end the query, repartition its state, start it again.

Repartitioning refuses a query that was stopped in the middle of a batch, so the query here ends by
itself after its last batch: nothing is waited for. The outage is the time from the end of the last
batch before to the end of the first one after, as the query itself reports them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.child import WORKERS, Spec, case
from benchmarks.data import FILES_PER_BATCH, SCHEMA
from benchmarks.measure import Fact, Outcome
from benchmarks.structured import batches, session, sums

TO = 2 * WORKERS
AFTER = 5
"""So many batches follow."""


def measure(spec: Spec) -> Outcome:
    """Load and run to the end, repartition, start again, and see when the next batch is done."""
    began = time.perf_counter()
    spark = session(spec)
    files = sorted(Path(spec.data).glob("*.parquet"))
    before = spec.number("load") + spec.number("warm") + spec.number("steady")
    _give(spec, files[: before * FILES_PER_BATCH])
    query = _start(spark, spec)
    query.awaitTermination()
    ended = time.time()
    spark._streamingCheckpointManager.repartition(_checkpoint(spec), TO)
    repartitioned = time.time()
    _give(spec, files[before * FILES_PER_BATCH :][: AFTER * FILES_PER_BATCH])
    again = _start(spark, spec)
    again.awaitTermination()
    done, following = _with_rows(query), _with_rows(again)
    info: dict[str, Fact] = {
        "outage": _end(following[0]) - _end(done[-1]),
        "repartition": repartitioned - ended,
        "state partitions": following[-1]["stateOperators"][0]["numShufflePartitions"],
    }
    return Outcome((*batches(query), *batches(again)), time.perf_counter() - began, False, info)


def _give(spec: Spec, files: Sequence[Path]) -> None:
    """Let the query find these files too."""
    given = Path(spec.work) / "in"
    given.mkdir(parents=True, exist_ok=True)
    for path in files:
        os.link(path, given / path.name)


def _start(spark: SparkSession, spec: Spec) -> StreamingQuery:
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(str(Path(spec.work) / "in"))
    )
    writer = sums(rows, "aggregate").writeStream.outputMode("update").format("noop")
    stored = writer.option("checkpointLocation", _checkpoint(spec))
    return stored.trigger(availableNow=True).start()


def _checkpoint(spec: Spec) -> str:
    return str(Path(spec.work) / "checkpoint")


def _with_rows(query: StreamingQuery) -> list[Mapping[str, Any]]:
    progress: list[Any] = list(query.recentProgress)
    return [each for each in progress if each["numInputRows"]]


def _end(progress: Mapping[str, Any]) -> float:
    """When a batch was done, in seconds since the epoch."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress["durationMs"]["triggerExecution"]) / 1000


if __name__ == "__main__":
    case(measure)
