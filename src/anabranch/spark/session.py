"""Spark sessions: start Spark if this process has none; never change the user's session."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.spark.jvm import (
    SESSION,
    Java,
    forget_dead_jvm,
    java_class,
    start_jvm,
    with_java_options,
)
from anabranch.spark.worker_python import check_worker_python

STEP_POOL = "steps"
QUERY_POOL = "queries"
"""The scheduler's pools; in a Spark that we did not start, all have the same weight."""

OWNED = "spark.anabranch.owned"
"""Set if a pipeline started Spark: then it owns the executors."""

_BYTE_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str((1 << 31) - 1)

STATIC = {
    OWNED: "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    # Hadoop takes this path literally: it would not find a URI with %20.
    "spark.scheduler.allocation.file": f"file://{Path(__file__).parent / 'pools.xml'}",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.dagGraph.retainedRootRDDs": "20",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.python.task.killTimeout": "2s",
    "spark.python.daemon.module": "anabranch.spark.daemon",
    "spark.task.reaper.enabled": "true",
    # Over TCP a small batch waits 40 ms in every task for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""The settings that we start Spark with; a running Spark keeps its own."""

IN_ONE_PROCESS = {
    # Spark ends the process of a task that runs out of memory. Here that is the driver's: a single
    # query would end the pipeline. A failed task ends only its job.
    "spark.executor.killOnFatalError.depth": "0"
}
"""The settings that we start Spark with if driver and tasks share a process."""

PER_SESSION = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    # Rows must not get lost because the cluster's defaults are lenient.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Expressions see the input columns, never their siblings: keys have no names there.
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    # Two attempts of a task name different files, so their checksums differ and Spark would fail
    # the job. A step's own reports tell which attempt was used (decision 0003).
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
    # A user's SQL is literal.
    "spark.sql.variable.substitute": "false",
    # A step is one job: Spark would start another one to list more than a few files.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
"""The settings that steps rely on, in their own session, so that the user's stays unchanged."""


def running_session() -> SparkSession | None:
    """The session that this process has, if any."""
    forget_dead_jvm()
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def open_session(master: str | None, configuration: dict[str, str] | None = None) -> SparkSession:
    """Open a session for the pipeline, in this process's Spark or in a new one.

    In a running Spark, only settings that can change at run time apply. ``ValueError`` for a
    setting that steps rely on; ``SparkUnavailable`` if its Python workers cannot run tasks.
    """
    wanted = configuration or {}
    for name, value in wanted.items():
        if PER_SESSION.get(name, value) != value:
            raise ValueError(
                f"spark_conf: steps rely on {name}={PER_SESSION[name]}, not {value}: leave it out"
            )
    running = running_session()
    if running is not None:
        check_worker_python(running.sparkContext)
    base = running if running is not None else _start(master or "local[*]", wanted)
    changeable = {n: v for n, v in wanted.items() if base.conf.isModifiable(n)}
    return new_session(base, {**changeable, **PER_SESSION})


def new_session(base: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of the same Spark, with these settings."""
    session = base.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def use_session(session: SparkSession) -> None:
    """Make a session the active one of this thread only."""
    _activate(session._jvm)(session._jsparkSession)


@lru_cache(maxsize=1)
def _activate(jvm: Java) -> Java:
    return java_class(jvm, SESSION).setActiveSession


def lift_byte_limit(session: SparkSession) -> None:
    """Bound the batches of Python tasks by rows alone, unless someone set a byte limit.

    Spark recomputes the bytes of a batch for every row that it adds: with a few columns of numbers
    that is a third of the cost of the transfer.
    """
    java: Java = session._jsparkSession
    if not java.sessionState().conf().contains(_BYTE_LIMIT):
        session.conf.set(_BYTE_LIMIT, _NO_LIMIT)


def use_pool(session: SparkSession, pool: str) -> None:
    """Schedule the jobs of this thread in a pool."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def _start(master: str, configuration: dict[str, str]) -> SparkSession:
    # Tasks must run in the interpreter that pickled their code.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    named = {"spark.master": master, "spark.app.name": "anabranch"}
    if re.fullmatch(r"local(\[.*\])?", master):
        named |= IN_ONE_PROCESS
    settings: dict[str, Any] = with_java_options({**named, **STATIC, **configuration})
    start_jvm(settings)
    with _keep_interrupt_handler():
        return SparkSession.builder.config(map=settings).getOrCreate()


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Leave Ctrl-C to the program: pyspark would first cancel the current step."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
