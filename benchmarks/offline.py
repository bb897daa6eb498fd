"""Spark's own way to more state partitions: stop the query, repartition its state, start it again.

The outage is the time from the end of the last batch before to the end of the first one after, as
the query itself reports them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
LOOK_SECONDS = 0.02


def measure(spec: Spec) -> Outcome:
    """Load, run, stop, repartition, start, and see when the next batch is done."""
    began = time.perf_counter()
    spark = session(spec)
    query = _start(spark, spec)
    _until_batch(query, spec.number("load") + spec.number("warm") + spec.number("steady"))
    query.stop()
    last = _end(_with_rows(query)[-1])
    done, stopped = batches(query), time.time()
    spark._streamingCheckpointManager.repartition(_checkpoint(spec), TO)
    repartitioned = time.time()
    again = _start(spark, spec)
    _until_batch(again, 1)
    again.stop()
    first = _end(_with_rows(again)[0])
    facts: dict[str, Fact] = {
        "outage": first - last,
        "repartition": repartitioned - stopped,
        "state partitions": _with_rows(again)[-1]["stateOperators"][0]["numShufflePartitions"],
    }
    return Outcome((*done, *batches(again)), time.perf_counter() - began, False, facts)


def _start(spark: SparkSession, spec: Spec) -> StreamingQuery:
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(spec.data)
    )
    writer = sums(rows, "aggregate").writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", _checkpoint(spec)).start()


def _checkpoint(spec: Spec) -> str:
    return str(Path(spec.work) / "checkpoint")


def _with_rows(query: StreamingQuery) -> list[Mapping[str, Any]]:
    progress: list[Any] = list(query.recentProgress)
    return [each for each in progress if each["numInputRows"]]


def _until_batch(query: StreamingQuery, number: int) -> None:
    while len(_with_rows(query)) < number:
        if not query.isActive:
            raise AssertionError(f"the query ended: {query.exception()}")
        time.sleep(LOOK_SECONDS)


def _end(progress: Mapping[str, Any]) -> float:
    """When a batch was done, in seconds since the epoch."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress["durationMs"]["triggerExecution"]) / 1000


if __name__ == "__main__":
    case(measure)
