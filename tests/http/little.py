"""A little coordinator in memory: no journal, no node, but a pipeline that really moves.

Step *s* adds ``10 * s`` rows; the state is one row for each step, ``(step, rows)``, in the table
``totals``. Queries are run by SQLite. Checkpoints take as many files as there are steps.
A rescale moves one bin a step.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    PauseSource,
    ProfileWorker,
    RescalePipeline,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
    TakeCheckpoint,
)
from anabranch.coordinator.port import Answered
from anabranch.errors import (
    InvalidQuery,
    InvalidRequest,
    OperationRefused,
    QueryTimeout,
    QueryTooLarge,
)
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, GraphNodeInfo, ProgramInfo, SinkInfo
from anabranch.protocol.rescale_requests import RescaleRequest, TargetRequest
from anabranch.protocol.status import (
    ENDED,
    CheckpointStatus,
    CheckpointUnderWay,
    NodeStatus,
    OperatorStatus,
    Phase,
    RegionStatus,
    SinkStatus,
    SourceStatus,
    Status,
)
from anabranch.records.placed import OperatorShape
from anabranch.records.profiles import ProfileRequest
from anabranch.rescale.forecast import Forecast
from anabranch.task.profiling import TaskProfiler
from anabranch.task.queries import LIMIT_SECONDS, STEP
from tests.http.little_rescale import LittleRescale

BINS = 8
LONG = 600.0
REGION = "by-step"
SHAPE = OperatorShape("totals", "aggregate", REGION, "step bigint", "rows bigint")
FACTS = ProgramInfo(
    dataflow="little",
    code="c0de",
    bins=BINS,
    regions=("by-step",),
    shapes=(SHAPE,),
    sources=("numbers",),
    sinks=(SinkInfo("out", "parquet", takes_back=False),),
    graph=(
        GraphNodeInfo(0, "source", "numbers", None, ()),
        GraphNodeInfo(1, "aggregate", "totals", "by-step", (0,)),
        GraphNodeInfo(2, "sink", "out", "by-step", (1,)),
    ),
)


@dataclass
class Little:
    """The coordinator. ``pace`` is the time a step takes, ``file_seconds`` that of a file."""

    pace: float = 0.02
    file_seconds: float = 0.0
    met: bool = True
    phase: Phase = Phase.RUNNING
    step: int = 0
    branch: int = 0
    checkpoints: list[CheckpointStatus] = field(default_factory=list)
    under_way: CheckpointUnderWay | None = None
    failure: Failure | None = None
    source_paused: bool = False
    asked: list[Operation] = field(default_factory=list)
    rescale: LittleRescale = field(default_factory=lambda: LittleRescale(SHAPE, BINS))
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _listeners: list[queue.Queue[StepDone]] = field(default_factory=list)

    def begin(self) -> Little:
        threading.Thread(target=self._run, name="little", daemon=True).start()
        _begun.append(self)
        return self

    def end(self) -> None:
        with self._changed:
            if self.phase not in ENDED:
                self.phase = Phase.STOPPED
            self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while self.phase not in ENDED:
                if self.phase is Phase.RUNNING:
                    self._commit()
                self._changed.wait(self.pace)

    def _commit(self) -> None:
        self.step += 1
        moved = self.rescale.step(self.step, self.pace)
        done = StepDone(
            step=self.step,
            rows=10 * self.step,
            keys=self.step,
            seconds=self.pace,
            parts={"planning": self.pace / 4, "job": self.pace / 2, "commit": self.pace / 4},
            trigger="rows",
            lag={"numbers": 7},
            rows_merged=2,
            moved=moved,
        )
        for listener in self._listeners:
            listener.put(done)

    def fail(self, failure: Failure) -> None:
        with self._changed:
            self.failure, self.phase = failure, Phase.FAILED
            self._changed.notify_all()

    # ----------------------------------------------------------------------------- the protocol

    def status(self) -> Status:
        with self._changed:
            step, assignment = self.step, self.rescale.assignment
            count = assignment.count
            return Status(
                phase=self.phase,
                dataflow="little",
                leader=3,
                branch=self.branch,
                step=step,
                clock_ns=1_700_000_000_000_000_000 + step,
                published=step,
                workers=len(set(assignment.workers)),
                under_way=None,
                waiting_for="a start" if self.phase is Phase.PAUSED else None,
                replaying=None,
                failure=self.failure,
                node=NodeStatus("boot", "app-1", "c0de", "open", 0.1),
                regions=(
                    RegionStatus(
                        "by-step",
                        assignment.generation,
                        assignment.workers,
                        step,
                        16 * step,
                        3,
                        self.rescale.keys_by_worker,
                        (16 * step // count,) * count,
                    ),
                ),
                operators=(OperatorStatus("totals", "by-step", step, 16 * step, 3),),
                sources=(SourceStatus("numbers", 7, paused=self.source_paused),),
                sinks=(SinkStatus("out", step, 0),),
                checkpoints=tuple(self.checkpoints),
                checkpoint=self.under_way,
                queued=(),
                triggers={"rows": step},
                rows=5 * step * (step + 1),
                last_seconds=self.pace if step else None,
                last_rows=10 * step if step else None,
                batch_rows=1000,
                rescale=self.rescale.status,
                rescales=self.rescale.history,
            )

    def info(self) -> ProgramInfo | None:
        return FACTS if self.met else None

    def ask(self, operation: Operation, seconds: float | None) -> Answered:
        self.asked.append(operation)
        until = time.monotonic() + (LONG if seconds is None else seconds)
        with self._changed:
            refused = self._unfit(operation)
            if refused is not None:
                return refused
            match operation:
                case StartPipeline():
                    self.phase = Phase.RUNNING
                case PausePipeline():
                    self.phase = Phase.PAUSED
                case PauseSource() | StartSource():
                    self.source_paused = isinstance(operation, PauseSource)
                case ShutDownPipeline():
                    return self._shutdown(seconds)
                case TakeCheckpoint():
                    return self._checkpoint(until)
                case LoadCheckpoint(step, accept):
                    return self._load(step, accept)
                case RescalePipeline() | ProfileWorker():
                    return self._with_a_step(operation, until)
            self._changed.notify_all()
            return Answered(step=self.step)

    def _with_a_step(self, operation: RescalePipeline | ProfileWorker, until: float) -> Answered:
        """What the next step answers."""
        if isinstance(operation, RescalePipeline):
            return self._rescale(operation.request, until)
        return self._profile(operation.request, until)

    def _profile(self, request: ProfileRequest, until: float) -> Answered:
        """A profile of adding up, as in the last step; who does not wait gets none."""
        if request.worker not in self.rescale.assignment.workers or request.region not in (
            None,
            REGION,
        ):
            return _refused(f"There is no worker {request.worker}", "Look at the status.")
        if self.phase is Phase.PAUSED:
            return _refused("The pipeline is paused", "Start it first.")
        if time.monotonic() >= until:
            return Answered(step=self.step, waiting=True)
        profiler = TaskProfiler(request.kind, REGION, request.worker)
        with profiler.measure():
            adding_up(self.step)
        assert profiler.profile is not None
        return Answered(step=self.step, profiles=(profiler.profile,))

    def _unfit(self, asked: Operation) -> Answered | None:
        if self.phase in ENDED and not isinstance(asked, ShutDownPipeline):
            why = "is over" if self.failure is None else "has failed"
            return _refused(f"The pipeline {why}", "Run it again to go on.")
        if isinstance(asked, PauseSource | StartSource) and asked.source not in FACTS.sources:
            return _refused(f"There is no source {asked.source!r}", "Sources: 'numbers'.")
        return None

    def _shutdown(self, seconds: float | None) -> Answered:
        if self.phase not in ENDED:
            self.phase = Phase.STOPPED
            self._changed.notify_all()
        return Answered(step=self.step, waiting=seconds == 0)

    def _checkpoint(self, until: float) -> Answered:
        if not self.step:
            return _refused("There is no committed step yet", "Ask again after the first one.")
        if self.under_way is None:
            self.under_way = CheckpointUnderWay(self.step, self.step, 0, None)
            threading.Thread(target=self._write_files, args=(self.step,), daemon=True).start()
        step = self.under_way.step
        while self.under_way is not None:
            left = until - time.monotonic()
            if left <= 0:
                return Answered(step=step, waiting=True)
            self._changed.wait(left)
        return Answered(step=step)

    def _write_files(self, step: int) -> None:
        began = time.monotonic()
        for done in range(step):
            time.sleep(self.file_seconds)
            with self._changed:
                self.under_way = CheckpointUnderWay(step, step, done + 1, None)
        with self._changed:
            seconds = time.monotonic() - began
            made = CheckpointStatus(step, self.branch, step, step, 16 * step, seconds)
            self.checkpoints = [*self.checkpoints, made][-2:]
            self.under_way = None
            self._changed.notify_all()

    def _load(self, step: int, accept: bool) -> Answered:
        kept = [one.step for one in self.checkpoints]
        if step not in kept:
            known = ", ".join(map(str, kept)) or "none"
            return _refused(f"Step {step} is not kept", f"Kept checkpoints: {known}.")
        if not accept and self.step > step:
            return _refused(
                f"Output after step {step} has gone to 'out', which cannot take it back",
                "Accept duplicates (accept_duplicates, --accept-duplicates) if they do no harm "
                "there.",
            )
        self.step, self.branch = step, self.branch + 1
        self._changed.notify_all()
        return Answered(step=step)

    def _rescale(self, request: RescaleRequest, until: float) -> Answered:
        try:
            self.rescale.ask(request)
        except OperationRefused as error:
            return Answered(failure=failure_of(error))
        # A commit must know of it; a pipeline that is paused makes none.
        asked_at = self.step
        while self.step == asked_at:
            left = until - time.monotonic()
            if left <= 0:
                return Answered(step=self.step, waiting=True)
            self._changed.wait(min(left, self.pace))
        return Answered(step=self.step)

    def forecast(self, request: TargetRequest) -> Forecast:
        with self._changed:
            return self.rescale.forecast(request)

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        if seconds > LIMIT_SECONDS:
            raise InvalidRequest(
                f"A query of this pipeline may take {LIMIT_SECONDS:g} seconds, not {seconds:g}",
                do="Ask for fewer seconds, or run the pipeline with --query-seconds.",
            )
        with self._changed:
            step = self.step
        until = time.monotonic() + seconds
        database = sqlite3.connect(":memory:")
        try:
            database.execute("create table totals (step integer, rows integer)")
            values = ((number, 10 * number) for number in range(1, step + 1))
            database.executemany("insert into totals values (?, ?)", values)
            database.set_progress_handler(lambda: int(time.monotonic() > until), 1000)
            cursor = database.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            found = cursor.fetchmany(rows + 1)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise QueryTimeout(f"It took more than {seconds:g} s") from error
            raise InvalidQuery(str(error)) from error
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise InvalidQuery(str(error)) from error
        finally:
            database.close()
        if len(found) > rows:
            raise QueryTooLarge(f"More than {rows} rows")
        columns = [pa.array([row[at] for row in found]) for at in range(len(names))]
        table = pa.Table.from_arrays(columns, names=names)
        if table.nbytes > bytes:
            raise QueryTooLarge(f"More than {bytes} bytes")
        return table.replace_schema_metadata({STEP: str(step).encode()})

    def steps(self, seconds: float) -> Iterator[StepDone | None]:
        heard: queue.Queue[StepDone] = queue.Queue()
        with self._changed:
            self._listeners.append(heard)
        try:
            while True:
                try:
                    yield heard.get(timeout=seconds)
                except queue.Empty:
                    if self.phase in ENDED:
                        return
                    yield None
        finally:
            with self._changed:
                self._listeners.remove(heard)


_begun: list[Little] = []


@contextmanager
def ended_afterwards() -> Iterator[None]:
    """End all that begin within: one that goes on takes its time from every later test."""
    before = len(_begun)
    yield
    while len(_begun) > before:
        _begun.pop().end()


def adding_up(step: int) -> int:
    """The work of a step."""
    return sum(10 * number for number in range(step))


def _refused(what: str, do: str) -> Answered:
    return Answered(failure=Failure("operation.refused", what, do=do))
