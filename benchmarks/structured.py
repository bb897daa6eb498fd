"""Spark Structured Streaming: the same sums, by native aggregation or transformWithState.

Update mode, checkpoints on the same disk, two shuffle partitions. The time of a batch is the time
of its trigger, as the query itself reports it.
"""

from __future__ import annotations

import math
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.data import FILES_PER_BATCH, SCHEMA
from benchmarks.measure import Batch, Fact, Outcome
from benchmarks.processors import RunningSum, RunningSumInPandas

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STORE = "spark.sql.streaming.stateStore"
STORES = {
    "hdfs": {},
    "rocksdb": {f"{_STORE}.providerClass": ROCKSDB},
    "rocksdb-tuned": {
        f"{_STORE}.providerClass": ROCKSDB,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    },
}
OUTPUT = "key bigint, total bigint"


def measure(spec: Spec) -> Outcome:
    """Run the query to the end of its input, or until time is up."""
    spark = session(spec)
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(spec.data)
    )
    return run_to_end(_to(spec, sums(rows, spec.text("query"))), spec)


def run_to_end(writer: DataStreamWriter, spec: Spec) -> Outcome:
    """Start a query and let it run to the end of its input, or until time is up."""
    query = start(writer, Path(spec.work))
    if query.awaitTermination(math.ceil(spec.seconds)):
        return Outcome(batches(query), time.time() - _first_trigger(query))
    query.stop()
    return _cut(batches(query), spec)


def session(spec: Spec) -> SparkSession:
    """Spark, with the state store that is asked for."""
    builder = SparkSession.builder.master(MASTER).appName("structured-streaming")
    conf = {
        **COMMON_CONF,
        **STORES[spec.text("store")],
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def sums(rows: DataFrame, query: str) -> DataFrame:
    """The query that is measured, over a stream."""
    keyed = rows.groupBy("key")
    if query == "aggregate":
        return keyed.agg(f.count("*").alias("n"), f.sum("amount").alias("total"))
    if query == "transform-row":
        return keyed.transformWithState(RunningSum(), OUTPUT, "Update", "None")
    return keyed.transformWithStateInPandas(RunningSumInPandas(), OUTPUT, "Update", "None")


def _to(spec: Spec, result: DataFrame) -> DataStreamWriter:
    writer = result.writeStream.outputMode("update")
    if spec.text("sink") == "noop":
        return writer.format("noop")
    output = str(Path(spec.work) / "out")

    def append(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(output)

    return writer.foreachBatch(append)


def start(writer: DataStreamWriter, work: Path) -> StreamingQuery:
    """Start a query over all input that is there, with its checkpoints in ``work``."""
    checkpoint = str(work / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def _first_trigger(query: StreamingQuery) -> float:
    first: Any = query.recentProgress[0]
    return datetime.fromisoformat(first["timestamp"]).timestamp()


def _cut(done: tuple[Batch, ...], spec: Spec) -> Outcome:
    """What was done when time was up.

    Where not even one batch was, that batch stands with the time given: its rate is lower.
    """
    info: dict[str, Fact] = {}
    if not done:
        done = (Batch(spec.number("rows"), spec.seconds),)
        info = {"unfinished": "not one batch was done when time was up: less than this"}
    return Outcome(done, sum(batch.seconds for batch in done), True, info)


def batches(query: StreamingQuery) -> tuple[Batch, ...]:
    """The batches of a query so far, without those that found nothing to read."""
    progress: list[Any] = list(query.recentProgress)
    return tuple(
        Batch(
            each["numInputRows"],
            each["durationMs"]["triggerExecution"] / 1000,
            {name: spent / 1000 for name, spent in each["durationMs"].items()},
        )
        for each in progress
        if each["numInputRows"]
    )


if __name__ == "__main__":
    case(measure)
