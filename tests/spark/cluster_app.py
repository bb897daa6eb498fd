"""Pipelines on clusters whose tasks fail, are overtaken, or lose their executor.

Run as a process of its own, since a process has one Spark: ``python cluster_app.py BASE
[SCENARIO …]``. Writes what happened to ``BASE/<scenario>.json``; the tests look at that.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.run import start_pipeline
from anabranch.spark.session import OWNED

ROWS = 400
STEPS = 2


def once(marker: Path) -> bool:
    """Whether this is the first call with this marker, in any process."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def note(directory: Path, text: str) -> None:
    """Leave a trace that can be counted."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{time.monotonic_ns()}-{random.getrandbits(32)}"
    (directory / name).write_text(text)


def partition() -> int:
    """The number of the running task's partition."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def kill_executor() -> None:
    """Kill the JVM that runs this task."""
    jvm = next(p for p in psutil.Process().parents() if "java" in p.name())
    jvm.kill()
    time.sleep(60)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something has happened, in another process."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)


def add(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
    """A running sum."""
    new = (total or 0) + row.value
    return (row.value % 13, new), new


def keep_last(key: Any, row: Any, last: int | None) -> tuple[Any, int]:
    """The last sum seen."""
    return (key.bucket, row.total), row.total


def tables(partition_number: int, start: int, end: int) -> dict[str, list[int]]:
    """Rows of the generator: the value is the row's number."""
    return {"value": list(range(start, end))}


def two_regions(
    base: Path,
    first: Callable[..., Any],
    second: Callable[..., Any],
    rows: int | None = ROWS * STEPS,
) -> ab.Dataflow:
    """Two regions in a row, each with a sink."""
    flow = ab.Dataflow("cluster")
    source = ab.GeneratorSource(tables, "value bigint", partitions=2, rows_per_step=ROWS, rows=rows)
    sums = (
        flow.source("numbers", source)
        .key_distribute("by-key", k="value % 29")
        .stateful_map("sums", first, state="total bigint", output="bucket bigint, total bigint")
    )
    sums.sink("sums-out", ab.FileSink(base / "sums", "parquet"))
    last = sums.key_distribute("by-bucket", "bucket").stateful_map(
        "last", second, state="total bigint", output="bucket bigint, total bigint"
    )
    last.sink("last-out", ab.FileSink(base / "last", "parquet"))
    return flow


def with_transforms(
    base: Path, first: Callable[..., Any], second: Callable[..., Any]
) -> ab.Dataflow:
    """The same with Spark code before each region, which changes nothing but where rows are."""
    flow = ab.Dataflow("cluster")
    source = ab.GeneratorSource(
        tables, "value bigint", partitions=2, rows_per_step=ROWS, rows=ROWS * STEPS
    )

    def joined(df: DataFrame) -> DataFrame:
        table = df.sparkSession.createDataFrame(
            [(n, n % 29) for n in range(ROWS)], "value long, k long"
        )
        return df.join(table, "value").select("value", "k", "_ord")

    sums = (
        flow.source("numbers", source)
        .transform("joined", joined)
        .key_distribute("by-key", "k")
        .stateful_map("sums", first, state="total bigint", output="bucket bigint, total bigint")
    )
    sums.sink("sums-out", ab.FileSink(base / "sums", "parquet"))
    last = (
        sums.transform("spread", lambda df: df.repartition(3))
        .key_distribute("by-bucket", "bucket")
        .stateful_map("last", second, state="total bigint", output="bucket bigint, total bigint")
    )
    last.sink("last-out", ab.FileSink(base / "last", "parquet"))
    return flow


def run(base: Path, flow: ab.Dataflow, workers: int = 2) -> dict[str, Any]:
    """Run to the end and say what came out."""
    points: list[str] = []
    pipeline = start_pipeline(
        flow,
        base / "state",
        ab.Settings(workers=workers),
        bins=16,
        reached=lambda point, step: points.append(f"{point}:{step}"),
    )
    status = pipeline.wait()
    return {
        "step": status.step,
        "points": points,
        "states": {name: pipeline.state_table(name).to_pylist() for name in status.keys},
    }


def failing_task(base: Path) -> dict[str, Any]:
    """A task that fails once."""

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        if row.value == 17:
            note(base / "executions", "17")
            if once(base / "failed"):
                os._exit(1)
        return add(key, row, total)

    return run(base, two_regions(base, first, keep_last))


def lost_executor(base: Path) -> dict[str, Any]:
    """An executor that dies when the first region is done and the second begins."""

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        if row.value in (5, 6, 7, 8, 9, 10):
            note(base / "executions", str(row.value))
        return add(key, row, total)

    def second(key: Any, row: Any, last: int | None) -> tuple[Any, int]:
        if once(base / "killed"):
            kill_executor()
        return keep_last(key, row, last)

    return run(base, two_regions(base, first, second))


def transforms(base: Path) -> dict[str, Any]:
    """Spark code between regions, a task that fails, and an executor that dies behind it."""

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        if row.value == 17:
            note(base / "executions", "17")
            if once(base / "failed"):
                os._exit(1)
        return add(key, row, total)

    def second(key: Any, row: Any, last: int | None) -> tuple[Any, int]:
        if once(base / "killed"):
            kill_executor()
        return keep_last(key, row, last)

    return run(base, with_transforms(base, first, second))


def different_attempts(base: Path) -> dict[str, Any]:
    """One task of the second region uses other attempts of the first region than another.

    The first region is not deterministic, so that using the wrong attempt would show.
    """

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        return add(key, row, random.getrandbits(40))

    def second(key: Any, row: Any, last: int | None) -> tuple[Any, int]:
        if partition() == 1 and once(base / "killed"):
            # The other task must be done, and Spark must know, before this executor dies.
            wait_for(lambda: any((base / "state/run/last").glob("*-by-bucket-2-0-*")))
            time.sleep(2)
            kill_executor()
        return keep_last(key, row, last)

    return run(base, two_regions(base, first, second))


def speculation(base: Path) -> dict[str, Any]:
    """A task so slow that Spark starts another attempt, which overtakes it."""

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        if partition() == 0:
            if row.value < ROWS and once(base / f"execution-{os.getpid()}"):
                note(base / "executions", "0")
            if once(base / "slept"):
                time.sleep(20)
        return add(key, row, total)

    return run(base, two_regions(base, first, keep_last))


def two_consumers(base: Path) -> dict[str, Any]:
    """A stream with two keyed consumers and a sink: computed once."""

    def first(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
        note(base / "executions", str(row.value))
        return add(key, row, total)

    flow = ab.Dataflow("consumers")
    source = ab.GeneratorSource(tables, "value bigint", rows_per_step=50, rows=100)
    sums = (
        flow.source("numbers", source)
        .key_distribute("by-key", k="value % 29")
        .stateful_map("sums", first, state="total bigint", output="bucket bigint, total bigint")
    )
    sums.sink("sums-out", ab.FileSink(base / "sums", "parquet"))
    sums.key_distribute("by-bucket", "bucket").aggregate("buckets", n="count(*)").sink(
        "buckets-out", ab.FileSink(base / "buckets", "parquet")
    )
    sums.where("total > 3").key_distribute("by-total", t="total % 7").aggregate(
        "totals", n="count(*)", most="max(total)"
    ).sink("totals-out", ab.FileSink(base / "totals", "parquet"))
    return run(base, flow)


@contextmanager
def standalone() -> Iterator[str]:
    """A master and two workers on two loopback hosts: Spark speculates on another host only."""
    home = Path(pyspark.__file__).parent
    java = {"SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    environment = {**os.environ, **java, "SPARK_HOME": str(home)}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"

    def start(name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        return subprocess.Popen(command, env={**environment, "SPARK_LOCAL_IP": host})

    worker = ("--cores", "1", "--memory", "1g", "--work-dir", tempfile.mkdtemp(), master)
    started = [
        start("master.Master", "127.0.0.1", "--port", str(port)),
        start("worker.Worker", "127.0.0.1", *worker),
        start("worker.Worker", "127.0.0.2", *worker),
    ]
    try:
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def released(base: Path) -> dict[str, Any]:
    """Workers go and come again, and executors with them."""
    flow = two_regions(base, add, keep_last, rows=None)
    pipeline = ab.run(flow, directory=base / "state", workers=4, bins=16)
    wait_for(lambda: pipeline.status().step >= 2)
    counts = [executors()]
    for workers, wanted in ((1, 1), (4, 2)):
        pipeline.scale(workers)
        wait_for(lambda: pipeline.status().rescale is None)
        wait_for(lambda wanted=wanted: executors() == wanted)  # type: ignore[misc]
        counts.append(executors())
    status = pipeline.shutdown()
    states = {name: pipeline.state_table(name).to_pylist() for name in status.keys}
    return {"executors": counts, "rows": status.rows, "states": states}


def executors() -> int:
    """How many executors there are."""
    spark = SparkSession.builder.getOrCreate()
    context: Any = spark.sparkContext._jsc
    return int(context.sc().statusStore().executorList(True).size()) - 1


@contextmanager
def local_cluster(workers: int, cores: int) -> Iterator[str]:
    """Spark's own cluster on one machine."""
    yield f"local-cluster[{workers},{cores},1024]"


SLOW = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.driver.host": "127.0.0.1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
Scenario = Callable[[Path], dict[str, Any]]
OURS = {"spark.python.daemon.module": "anabranch.spark.daemon", OWNED: "true"}
CLUSTERS: list[tuple[AbstractContextManager[str], dict[str, str], list[Scenario]]] = [
    (
        local_cluster(2, 1),
        OURS,
        [failing_task, lost_executor, different_attempts, two_consumers, released],
    )
]
LONG: list[tuple[AbstractContextManager[str], dict[str, str], list[Scenario]]] = [
    (standalone(), SLOW, [speculation]),
    (local_cluster(3, 1), {"spark.sql.shuffle.partitions": "4"}, [transforms]),
]
"""Run where they are asked for by name."""


def main() -> None:
    """Run every scenario; one that fails says so in its own file."""
    base = Path(sys.argv[1])
    wanted = sys.argv[2:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for cluster, extra, every in [*CLUSTERS, *(LONG if wanted else [])]:
        scenarios = [each for each in every if not wanted or each.__name__ in wanted]
        if not scenarios:
            continue
        with cluster as master:
            run_on(master, extra, scenarios, base)


def run_on(master: str, extra: dict[str, str], scenarios: list[Scenario], base: Path) -> None:
    """Run some scenarios in one Spark."""
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    java = {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    settings = {"spark.executor.memory": "1g", "spark.task.maxFailures": "4", **java}
    # Each scenario is a few steps: what Spark would compile for them is hardly used.
    settings |= {"spark.sql.codegen.wholeStage": "false"}
    settings |= {"spark.sql.codegen.factoryMode": "NO_CODEGEN", **extra}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for scenario in scenarios:
        directory = base / scenario.__name__
        directory.mkdir(parents=True)
        try:
            result = scenario(directory)
        except Exception:
            result = {"error": traceback.format_exc()}
        (base / f"{scenario.__name__}.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
