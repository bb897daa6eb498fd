"""The Spark session: made where there is none, never changed where there is one."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

STATIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.dagGraph.retainedRootRDDs": "20",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.python.task.killTimeout": "2s",
    "spark.task.reaper.enabled": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""What a session of ours is started with; a session that is there already keeps its own."""

PER_SESSION = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
"""What steps rely on: set in a session of their own, so that the user's stays as it is."""


def open_session(master: str | None, configuration: dict[str, str] | None = None) -> SparkSession:
    """A session for the pipeline: beside the active one if there is one, else a new Spark."""
    active = SparkSession.getActiveSession()
    base = active if active is not None else _start(master or "local[*]", configuration or {})
    session = base.newSession()
    for name, value in PER_SESSION.items():
        session.conf.set(name, value)
    return session


def _start(master: str, configuration: dict[str, str]) -> SparkSession:
    # Tasks must run in the interpreter that made their code.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("anabranch")
    for name, value in {**STATIC, **configuration}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
