"""Run SQL over state, beside the steps.

A query sees one committed step: its views are created from one snapshot and analyzed at once, then
it runs over files that never change. It has its own session, in which only the views have names;
``dataflow/sql/query_rules.py`` decides what a query may contain.

Queries stay out of the way of steps. Their pool gets a core only when no step wants one. Since
running tasks are not preempted, all queries together use at most half of the cores: few run at a
time, each with few tasks per stage, and the rest wait their turn. A cancelled task may run on for a
while (Spark asks it to end, and not every loop listens): a query's turn ends with its last task, or
when ``workers`` abandons it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.dataflow.sql.built_size import BUILDERS, check_built
from anabranch.dataflow.sql.query_rules import check_leaves, check_resolved, operators_in_query
from anabranch.errors import InvalidQuery, QueryFailed, QueryTimeout, SnapshotExpired
from anabranch.spark.failure import query_failure, quietly
from anabranch.spark.queries.plan_reader import PlanReader, built_by, leaves_of
from anabranch.spark.queries.scan import PACKED, state_frame, unpack, within_limits
from anabranch.spark.queries.workers import GRACE_SECONDS, QueryWorkers, Work
from anabranch.spark.session import PER_SESSION, QUERY_POOL, new_session, use_pool, use_session
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

_TASK_SETTINGS = ("spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism")


@dataclass
class _Ticket:
    """A query in progress: its job group, whether it was cancelled, and where it is analyzed."""

    group: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    bench: _Workbench | None = None


class _Workbench:
    """A session in which queries are analyzed, one at a time.

    The views have the operators' names whatever step they show, so only one query at a time may
    create them; an analyzed query keeps the views that it found.
    """

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        own = dict.fromkeys(_TASK_SETTINGS, str(tasks))
        self.assembly = Assembly(new_session(spark, {**PER_QUERY_SESSION, **own}))
        self.plans = PlanReader(self.assembly.spark)
        self.lock = threading.Lock()


class SparkQueries:
    """Runs queries on this process's Spark. Any thread may call it.

    The first query creates the session and the threads.
    """

    def __init__(self, spark: SparkSession, store: Path, grace: float = GRACE_SECONDS) -> None:
        """``grace``: how many seconds a cancelled query has to return."""
        self._spark = spark
        self._store = store
        self._lock = threading.Lock()
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._tasks = max(1, self._cores // 4)
        at_a_time = 2 if self._cores >= 4 else 1
        self._workers = QueryWorkers[pa.Table](at_a_time, max(1, self._cores // 2), grace)
        self._bench: _Workbench | None = None

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
        work = Work(
            partial(self._answer, ticket, sql, committed, limits),
            partial(self._cancel, ticket),
            partial(self._running_tasks, ticket),
        )
        return self._workers.run(work, limits.seconds)

    def frame(self, snapshot: Snapshot, operator: str) -> DataFrame:
        """An operator's state as a DataFrame that reads the files on use."""
        return state_frame(self._readers, snapshot.view(operator), self._store, self._cores)

    @cached_property
    def _readers(self) -> Assembly:
        """The session of DataFrames given to users, separate from that of queries."""
        return Assembly(new_session(self._spark, PER_SESSION))

    def _answer(
        self, ticket: _Ticket, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits
    ) -> pa.Table:
        """Run a query, in a thread of its own."""
        use_pool(self._spark, QUERY_POOL)
        try:
            return self._result(ticket, sql, committed, limits)
        finally:
            if ticket.cancelled.is_set():
                self._await_tasks(ticket)

    def _result(
        self, ticket: _Ticket, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits
    ) -> pa.Table:
        snapshot, bench, df = self._analyzed(ticket, sql, committed)
        names = df.columns
        # Column names may repeat, and tasks could not tell such columns apart.
        numbers = [f"c{place}" for place in range(len(names))]
        numbered = df.toDF(*numbers)
        bounded = bench.assembly.map_in_arrow(
            numbered.limit(limits.rows + 1), numbers, partial(within_limits, limits), PACKED
        )
        self._spark.sparkContext.setJobGroup(ticket.group, "a query over state", True)
        if ticket.cancelled.is_set():
            raise QueryTimeout("The query was cancelled before it ran")
        try:
            with quietly():
                # Not ``toArrow``: an error that ends the JVM's thread behind it goes unnoticed.
                packed = [bytes(row[0]) for row in bounded.collect()]
        except (PySparkException, Py4JError) as error:
            failure = query_failure(error)
            if isinstance(failure, SnapshotExpired):
                failure = missing_or_expired(failure, committed())
            raise failure from error
        metadata = {STEP: str(snapshot.step).encode()}
        table = unpack(packed, to_arrow_schema(numbered.schema, timezone="UTC"))
        return table.rename_columns(names).replace_schema_metadata(metadata)

    def _analyzed(
        self, ticket: _Ticket, sql: str, committed: Callable[[], Snapshot]
    ) -> tuple[Snapshot, _Workbench, DataFrame]:
        """Check a query and analyze it over the views of one step."""
        with self._lock:
            if self._bench is None:
                self._bench = _Workbench(self._spark, self._tasks)
            ticket.bench = bench = self._bench
        while not bench.lock.acquire(timeout=POLL_SECONDS):
            if ticket.cancelled.is_set():
                raise QueryTimeout("The query was cancelled before it was analyzed")
        try:
            # The parser uses the settings of its thread's active session.
            use_session(bench.assembly.spark)
            parsed = bench.plans.parse(sql)
            snapshot = committed()
            wanted = operators_in_query(parsed, snapshot.operators, bench.plans.group_of)
            for operator in sorted(wanted):
                state = snapshot.view(operator)
                view = state_frame(bench.assembly, state, self._store, self._tasks)
                bench.assembly.view(view, operator)
            df = bench.plans.analyze(sql)
            check_leaves(leaves_of(df._jdf.queryExecution().analyzed()), wanted)
            check_resolved(bench.plans.current_names(df), bench.plans.group_of)
            if not BUILDERS.keys().isdisjoint(name[-1].lower() for name in parsed.functions):
                for expression in built_by(df):
                    check_built(expression)
            return snapshot, bench, df
        finally:
            bench.lock.release()

    def _cancel(self, ticket: _Ticket) -> None:
        """Cancel the jobs of a query, including future ones."""
        ticket.cancelled.set()
        with self._lock:
            # It may be stuck while it holds the lock: later queries take another session.
            if self._bench is ticket.bench is not None and ticket.bench.lock.locked():
                self._bench = None
        context = self._spark.sparkContext._jsc.sc()
        context.cancelJobGroupAndFutureJobs(ticket.group)

    def _await_tasks(self, ticket: _Ticket) -> None:
        """Wait until no task of a cancelled query runs any more, or Spark has stopped."""
        while self._running_tasks(ticket):
            time.sleep(POLL_SECONDS)

    def _running_tasks(self, ticket: _Ticket) -> int:
        """How many tasks of a query run, and hold a core each."""
        if self._spark.sparkContext._jsc is None:
            return 0
        try:
            tracker = self._spark.sparkContext.statusTracker()
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(ticket.group))
            stages = [stage for job in jobs if job is not None for stage in job.stageIds]
            known = [info for info in map(tracker.getStageInfo, stages) if info is not None]
            return sum(info.numActiveTasks for info in known)
        except Py4JError:
            return 0
