"""Run SQL over state, beside the steps.

A query sees one committed step: its views are created from one snapshot and analyzed at once, then
it runs over files that never change. It has its own session, in which only the views have names;
``dataflow/sql/query_rules.py`` decides what a query may contain.

Queries stay out of the way of steps. Their pool gets a core only when no step wants one. Since
running tasks are not preempted, all queries together use at most half of the cores: few run at a
time, each with few tasks per stage, and the rest wait their turn. A cancelled task may run on for a
while (Spark asks it to end, and not every loop listens): a query's turn ends with its last task.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.sql.query_rules import check_leaves, operators_in_query
from anabranch.errors import InvalidQuery, QueryFailed, QueryTimeout, SnapshotExpired
from anabranch.spark.failure import query_failure, quietly
from anabranch.spark.queries.plan_reader import PlanReader
from anabranch.spark.queries.scan import state_frame, within_limits
from anabranch.spark.session import PER_SESSION, QUERY_POOL, use_pool, use_session
from anabranch.spark.step.assembly import Assembly
from anabranch.task.queries import STEP, QueryLimits
from anabranch.task.state_reader import Snapshot, missing_or_expired

__all__ = ["DataFrame", "SparkQueries"]

LONGEST_TEXT = 100_000
POLL_SECONDS = 0.05

PER_QUERY_SESSION = {
    **PER_SESSION,
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "true",
    # The rules reject files by name; this session would not read them anyway.
    "spark.sql.runSQLOnFiles": "false",
    # The broadcast side of a join is in the driver's memory.
    "spark.sql.maxBroadcastTableSize": str(64 << 20),
    # Loops over broadcast or buffered rows ignore the cancellation of their task; loops over rows
    # in Spark's sorter do not.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.cartesianProductExec.buffer.in.memory.threshold": "0",
    "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": "1024",
}
"""The settings that queries rely on, in their own session."""


@dataclass
class _Ticket:
    """A query in progress: its job group, whether it has begun, and whether it was cancelled."""

    group: str
    begun: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


class SparkQueries:
    """Runs queries on this process's Spark. Any thread may call it.

    The first query creates the session and the threads.
    """

    def __init__(self, spark: SparkSession, store: Path) -> None:
        self._spark = spark
        self._store = store
        self._lock = threading.Lock()
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._tasks = max(1, self._cores // 4)
        at_a_time = 2 if self._cores >= 4 else 1
        self._threads = ThreadPoolExecutor(at_a_time, thread_name_prefix="anabranch-query")

    def run(self, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits) -> pa.Table:
        """The rows of a query over the state committed when its turn comes.

        The metadata of the result's schema has the step, as ``anabranch.step``. Raises a
        ``QueryError``; the time limit includes the wait for its turn.
        """
        if self._spark.sparkContext._jsc is None:
            raise QueryFailed("Spark has been stopped", do="Run the pipeline again.")
        if len(sql) > LONGEST_TEXT:
            raise InvalidQuery(
                f"The query has {len(sql):,} characters", do=f"Use at most {LONGEST_TEXT:,}."
            )
        ticket = _Ticket(f"anabranch-query-{secrets.token_hex(8)}")
        answer = self._threads.submit(self._answer, ticket, sql, committed, limits)
        try:
            wait([answer], limits.seconds)
            if not answer.done():
                raise _timeout(ticket, limits)
        except BaseException:
            self._cancel(ticket, answer)
            raise
        return answer.result()

    def frame(self, snapshot: Snapshot, operator: str) -> DataFrame:
        """An operator's state as a DataFrame that reads the files on use."""
        return state_frame(self._readers, snapshot.view(operator), self._store, self._cores)

    @cached_property
    def _readers(self) -> Assembly:
        """The session of DataFrames given to users, separate from that of queries."""
        return Assembly(_session(self._spark, PER_SESSION))

    @cached_property
    def _plans(self) -> PlanReader:
        return PlanReader(self._assembly.spark)

    @cached_property
    def _assembly(self) -> Assembly:
        tasks = str(self._tasks)
        own = {"spark.sql.shuffle.partitions": tasks, "spark.sql.leafNodeDefaultParallelism": tasks}
        return Assembly(_session(self._spark, {**PER_QUERY_SESSION, **own}))

    def _answer(
        self, ticket: _Ticket, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits
    ) -> pa.Table:
        """Run a query, in a thread of the pool."""
        ticket.begun.set()
        use_pool(self._spark, QUERY_POOL)
        try:
            return self._result(ticket, sql, committed, limits)
        finally:
            if ticket.cancelled.is_set():
                self._await_tasks(ticket)

    def _result(
        self, ticket: _Ticket, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits
    ) -> pa.Table:
        snapshot, df = self._analyze(sql, committed)
        names = df.columns
        # Column names may repeat, and tasks could not tell such columns apart.
        numbers = [f"c{place}" for place in range(len(names))]
        numbered = df.toDF(*numbers)
        bounded = self._assembly.map_in_arrow(
            numbered.limit(limits.rows + 1),
            numbers,
            partial(within_limits, limits),
            numbered.schema,
        )
        self._spark.sparkContext.setJobGroup(ticket.group, "a query over state", True)
        if ticket.cancelled.is_set():
            raise QueryTimeout("The query was cancelled before it ran")
        try:
            with quietly():
                table = bounded.toArrow()
        except (PySparkException, Py4JError) as error:
            failure = query_failure(error)
            if isinstance(failure, SnapshotExpired):
                failure = missing_or_expired(failure, committed())
            raise failure from error
        metadata = {STEP: str(snapshot.step).encode()}
        return table.rename_columns(names).replace_schema_metadata(metadata)

    def _analyze(self, sql: str, committed: Callable[[], Snapshot]) -> tuple[Snapshot, DataFrame]:
        """Check a query and analyze it over the views of one step.

        The views have the operators' names whatever step they show, so only one query at a time
        may create them; an analyzed query keeps the views that it found.
        """
        with self._lock:
            # The parser uses the settings of its thread's active session.
            use_session(self._assembly.spark)
            parsed = self._plans.parse(sql)
            snapshot = committed()
            wanted = operators_in_query(parsed, snapshot.operators, self._plans.group_of)
            for operator in sorted(wanted):
                view = state_frame(
                    self._assembly, snapshot.view(operator), self._store, self._tasks
                )
                self._assembly.view(view, operator)
            df = self._plans.analyze(sql)
            check_leaves(self._plans.leaves(df), wanted)
            return snapshot, df

    def _cancel(self, ticket: _Ticket, answer: Future[pa.Table]) -> None:
        """Cancel the jobs of a query, including future ones."""
        ticket.cancelled.set()
        answer.cancel()
        context = self._spark.sparkContext._jsc.sc()
        context.cancelJobGroupAndFutureJobs(ticket.group)

    def _await_tasks(self, ticket: _Ticket) -> None:
        """Wait until no task of a cancelled query runs any more, or Spark has stopped."""
        tracker = self._spark.sparkContext.statusTracker()
        while self._spark.sparkContext._jsc is not None:
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(ticket.group))
            stages = [stage for job in jobs if job is not None for stage in job.stageIds]
            known = [info for info in map(tracker.getStageInfo, stages) if info is not None]
            if not any(info.numActiveTasks for info in known):
                return
            time.sleep(POLL_SECONDS)


def _timeout(ticket: _Ticket, limits: QueryLimits) -> QueryTimeout:
    if ticket.begun.is_set():
        return QueryTimeout(
            f"The query took longer than {limits.seconds:g} seconds and was cancelled",
            do="Ask for less, or raise limit_seconds.",
        )
    return QueryTimeout(
        f"The query waited longer than {limits.seconds:g} seconds for its turn",
        do="Other queries, or tasks of a cancelled one, still run. Try again later.",
    )


def _session(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
