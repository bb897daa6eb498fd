"""Run steps on Spark: each is one job with one action.

While a step runs, the query of the next one is built and planned if its input is known: that is
half the time of a small step. The messages to its tasks come last, into the blanks of its query.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.messages import Attempt, ReadTime, Report
from anabranch.protocol.data_plane import WATCHED, RetryStep
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.shares import members
from anabranch.rescale.step_moves import PART, moves_of
from anabranch.spark.executors import Executors, releasing
from anabranch.spark.failure import INDETERMINATE, quietly
from anabranch.spark.jvm import check_jvm
from anabranch.spark.session import STEP_POOL, use_pool, use_session
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.step_error import explain_step_error
from anabranch.spark.step.step_query import StepQueries, StepQuery, reads_of
from anabranch.task.program import Program
from anabranch.task.worker_home import Homes, tidy_homes

_MOST_IN_VAIN = 6
_PATIENCE = 1.0
"""Seconds that ``prepare`` waits for the query of the step before."""

_decode_report = msgspec.msgpack.Decoder(Report).decode


@dataclass
class SparkPlane:
    """Runs steps on Spark. One step at a time."""

    spark: SparkSession
    program: Program
    store: Path
    code: str
    sources: SparkSources
    homes: Homes | None = None
    timings: dict[str, float] = field(default_factory=dict)
    _thread: int | None = None
    #: held while a query is built
    _making: threading.Condition = field(default_factory=threading.Condition)
    _begun: int = -1
    _prepared: StepQuery | None = None
    _tried: Plan | None = None
    #: how many prepared queries in a row were useless, and the step at which to try again
    _in_vain: int = 0
    _prepare_from: int = 0
    _tidied: bool = False
    _group: str = field(default_factory=lambda: f"anabranch-steps-{secrets.token_hex(8)}")

    def __post_init__(self) -> None:
        self._executors = Executors(self.spark)
        self._queries = StepQueries(
            self.spark, self.program, self.store, self.code, self.sources, self.homes
        )

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step and return the reports of all its tasks. Raises an ``AnabranchError``."""
        started = time.perf_counter()
        self._tidy(plan)
        moves = moves_of(plan)
        if moves is not None and moves.announced:
            self._fit(members(moves.announced))
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            use_pool(self.spark, STEP_POOL)
            self.spark.sparkContext.setJobGroup(self._group, "steps", interruptOnCancel=True)
        try:
            query = self.query(plan)
            if query is None:
                return []
            self._queries.fill(query, plan, states)
            built = time.perf_counter()
            with quietly():
                rows = query.frame.collect()
                times = query.watchers.times()
        except (PySparkException, Py4JError) as error:
            if INDETERMINATE in str(error):
                raise RetryStep("an executor was lost between two shuffles") from error
            raise explain_step_error(self.spark, self.program, plan, error) from error
        finished = time.perf_counter()
        self.timings = {"build": built - started, "job": finished - built}
        if moves is not None and moves.shutdown:
            self._fit(members(plan.placement))
        reports = [_decode_report(bytes(row[0])) for row in rows]
        return [*reports, times_report(times)] if times else reports

    def check_alive(self) -> None:
        """Raise ``JvmDied`` unless Spark's JVM answers."""
        check_jvm()

    def prepare(self, plan: Plan) -> bool:
        """Build and plan the query of a step that may come; whether there was anything to do.

        The query of the step before comes first. An error here is ignored: it recurs when the step
        runs.
        """
        if self._queries.calls_user_code or plan.step < self._prepare_from:
            return False
        with self._making, contextlib.suppress(PySparkException, Py4JError, OSError):
            self._making.wait_for(lambda: self._begun == plan.step - 1, _PATIENCE)
            if self._begun != plan.step - 1 or self._tried == plan:
                return False
            self._prepared, self._tried = None, plan
            query = self._queries.query(plan)
            if query is not None:
                # Outside an action Spark plans with the settings of the active session.
                use_session(self.spark)
                # This also compiles the code of the stages, not only the physical plan.
                query.frame._jdf.queryExecution().toRdd()
                self._prepared = query
        return True

    def query(self, plan: Plan) -> StepQuery | None:
        """The query of a step: the prepared one if it fits, or a new one."""
        with self._making:
            self._begun = plan.step
            self._making.notify_all()
            prepared = self._prepared
            if prepared is None or prepared.plan_key.step > plan.step:
                return self._queries.query(plan)
            self._prepared = None
            reused = self._queries.reuse(prepared, plan)
            if reused is not None:
                self._in_vain = 0
                return reused
            if prepared.plan_key.reads != reads_of(plan):
                # If input keeps growing until the last moment, preparing only wastes time.
                self._in_vain = min(self._in_vain + 1, _MOST_IN_VAIN)
                self._prepare_from = plan.step + 2**self._in_vain
            return self._queries.query(plan)

    @property
    def releasing(self) -> str:
        """What happens to executors when workers go."""
        return releasing(self.spark)

    def _fit(self, workers: Sequence[int]) -> None:
        """Have the executors that these workers need; a cluster may refuse, and steps continue."""
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            self._executors.fit(len(workers))

    def _tidy(self, plan: Plan) -> None:
        """Remove stale homes, once, and not while bins move."""
        if self.homes is not None and PART not in plan.parts and not self._tidied:
            self._tidied = True
            tidy_homes(self.homes, members(plan.placement))

    def cancel(self) -> None:
        """Cancel the running step. Its tasks may run on for a while."""
        # A JVM that is dead has cancelled it.
        with contextlib.suppress(Py4JError, OSError):
            if self.spark.sparkContext._jsc is not None:
                self.spark.sparkContext.cancelJobGroup(self._group)


def times_report(times: tuple[ReadTime, ...]) -> Report:
    """What Spark saw of event times: the same whichever attempts of tasks are used."""
    return Report(Attempt(0, WATCHED, 0, secrets.token_hex(16)), (), (), (), (), {}, times=times)
