"""The handle of a running pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.errors import AnabranchError, QueryFailed, SnapshotExpired
from anabranch.node.queries import LIMIT_BYTES, LIMIT_ROWS, Queries, QueryLimits
from anabranch.node.runner import Runner, StepDone
from anabranch.node.state_reader import missing_or_expired, read_table

if TYPE_CHECKING:
    from anabranch.spark.query import DataFrame

IDLE_SECONDS = 0.05
SINK_SECONDS = 0.5


class Phase(StrEnum):
    """What a pipeline is doing."""

    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """A pipeline at one moment: the last committed step, the last published one, and the state."""

    phase: Phase
    step: int
    published: int
    keys: dict[str, int]
    last: StepDone | None
    waiting_for_sinks: bool


class Pipeline:
    """A pipeline that runs in a thread of this process."""

    def __init__(
        self,
        directory: Path,
        runner: Runner,
        watch: Callable[[StepDone], None] | None,
        cleanup: Callable[[], None],
        queries: Queries | None = None,
    ) -> None:
        """Not started yet."""
        self._directory = directory
        self._runner = runner
        self._watch = watch
        self._cleanup = cleanup
        self._queries = queries
        self._stop = threading.Event()
        # Waited for instead of the thread: a join that Ctrl-C interrupts takes it for ended.
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._phase = Phase.RUNNING
        self._last: StepDone | None = None
        self._waiting = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-steps", daemon=True)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the pipeline has ended, or for so many seconds; raise what made it fail.

        A pipeline ends when all its sources have ended and everything is published, when it is
        shut down, or when a step fails.
        """
        self._over.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return self.status()

    def shutdown(self) -> Status:
        """Finish the step under way, publish what is committed, and end.

        Running the same dataflow in the same directory continues after the last step.
        """
        with self._lock:
            if self._phase is Phase.RUNNING:
                self._phase = Phase.STOPPING
        self._stop.set()
        return self.wait()

    def status(self) -> Status:
        """Where the pipeline stands."""
        with self._lock:
            states = self._runner.states
            keys = {state.operator: sum(state.live) for state in states}
            return Status(
                self._phase,
                self._runner.step,
                self._runner.published,
                keys,
                self._last,
                self._waiting,
            )

    def query(
        self,
        sql: str,
        *,
        limit_rows: int = LIMIT_ROWS,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float | None = None,
    ) -> pa.Table:
        """The rows of one SQL query over the state of the operators, at the last committed step.

        Each operator is a table of its name: key columns, state columns, ``_worker`` and ``_bin``.
        Names that are not words stand in double quotes, texts in single quotes. Any thread may
        ask, while steps run and after the pipeline has ended. A query that needs more than its
        limits is refused with ``QueryTooLarge`` or cancelled with ``QueryTimeout``; seconds are
        ``query_seconds`` of the settings, which is also the most. Nothing but state can be read,
        and nothing can be changed: see ``QueryError``.
        """
        longest = self._runner.settings.query_seconds
        seconds = longest if limit_seconds is None else limit_seconds
        if seconds > longest:
            raise ValueError(f"limit_seconds={seconds:g} is more than query_seconds={longest:g}")
        if self._queries is None or not longest:
            raise QueryFailed(
                "This pipeline takes no queries",
                do="Run it with Spark in this process and query_seconds above 0.",
            )
        limits = QueryLimits(limit_rows, limit_bytes, seconds)
        return self._queries.run(sql, lambda: self._runner.snapshot, limits)

    def state(self, operator: str) -> DataFrame | pa.Table:
        """An operator's state at the last committed step, with the columns that ``query`` shows.

        A DataFrame where Spark runs in this process, else an Arrow table. The DataFrame reads the
        files of that step when it is used: ``SnapshotExpired`` when it is used too late.
        """
        if self._queries is None:
            return self.state_table(operator)
        return self._queries.frame(self._runner.snapshot, operator)

    def state_table(self, operator: str) -> pa.Table:
        """An operator's state at the last committed step, read here: key columns, state columns."""
        view = self._runner.snapshot.view(operator)
        try:
            return read_table(view, self._directory)
        except SnapshotExpired as error:
            raise missing_or_expired(error, self._runner.snapshot) from error

    def start(self) -> None:
        """Begin to run steps."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._steps()
            self._runner.close()
            self._ended(Phase.STOPPED if self._stop.is_set() else Phase.COMPLETED)
        except BaseException as error:
            self._failure = error
            self._runner.give_up()
            self._ended(Phase.FAILED)
            if not isinstance(error, AnabranchError):
                raise
        finally:
            self._cleanup()
            self._over.set()

    def _ended(self, phase: Phase) -> None:
        with self._lock:
            self._phase = phase

    def _steps(self) -> None:
        while not self._stop.is_set():
            self._waiting = not self._runner.wait_for_sinks(SINK_SECONDS)
            if self._waiting:
                continue
            plan = self._runner.next_plan()
            if plan is None:
                if self._runner.ended():
                    return
                self._stop.wait(IDLE_SECONDS)
                continue
            done = self._runner.run(plan)
            with self._lock:
                self._last = done
            if self._watch is not None:
                self._watch(done)


def wall_clock() -> float:
    """Seconds since the epoch."""
    return time.time()
