"""The handle of a running pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import pyarrow as pa

from anabranch.coordinator.driver import Driver
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
from anabranch.coordinator.settings import Settings
from anabranch.errors import DeadlinePassed, SnapshotExpired
from anabranch.node.threads import ThreadedNode
from anabranch.protocol import rescale_requests as requests
from anabranch.protocol.failures import error_of
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.rescale_requests import Balance, Rebalance, Scale, TargetRequest
from anabranch.protocol.status import Status
from anabranch.records.profiles import ProfileKind, ProfileRequest, TaskProfile
from anabranch.rescale.forecast import Forecast
from anabranch.task.queries import LIMIT_BYTES, LIMIT_ROWS
from anabranch.task.state_reader import missing_or_expired, read_table

if TYPE_CHECKING:
    from anabranch.spark.queries.query import DataFrame


class Pipeline:
    """A pipeline that runs in threads of this process."""

    def __init__(
        self, directory: Path, driver: Driver, node: ThreadedNode, settings: Settings
    ) -> None:
        """The caller starts ``driver``."""
        self._directory = directory
        self._driver = driver
        self._node = node
        self._settings = settings

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the pipeline ends, at most ``timeout`` seconds; raise its failure, if any.

        A pipeline ends when all its sources have ended and everything is published, when it is
        shut down, or when a step fails.
        """
        if self._driver.wait(timeout):
            failure = self._driver.failure()
            if failure is not None:
                raise failure
        return self.status()

    def shutdown(self) -> Status:
        """Finish the current step, publish what is committed, keep a checkpoint and end.

        Running the same dataflow in the same directory continues after the last step.
        """
        self._driver.ask(ShutDownPipeline(), 0.0)
        return self.wait()

    def pause(self, *, source: str | None = None) -> Status:
        """Finish the current step and plan no further one. Returns at once.

        With a ``source``, stop reading only that source and continue with everything else. The
        next step or two still read what it has already offered. The pause holds until the source
        is started or the pipeline restarted; until then the pipeline does not complete, unless the
        source has ended. ``OperationRefused`` if there is no such source.
        """
        return self._ask(PausePipeline() if source is None else PauseSource(source), None)

    def start(self, *, source: str | None = None) -> Status:
        """Resume a paused pipeline or, with its name, a paused ``source``, where it stopped.

        Paused sources stay paused when the pipeline resumes.
        """
        return self._ask(StartPipeline() if source is None else StartSource(source), None)

    def checkpoint(self, timeout: float | None = None) -> Status:
        """Keep the last committed step as a checkpoint; returns when it is durable.

        Raises ``OperationRefused`` before the first step and after the pipeline has ended, and
        ``DeadlinePassed`` after ``timeout`` seconds, while it continues.
        """
        return self._ask(TakeCheckpoint(), timeout)

    def load(self, step: int, *, accept_duplicates: bool = False) -> Status:
        """Go back to a kept checkpoint, in a new branch; later steps stay in the old branch.

        Sinks retract what they have published since. ``OperationRefused`` if the step is not kept,
        or if a sink cannot retract and duplicates are not accepted.
        """
        return self._ask(LoadCheckpoint(step, accept_duplicates), None)

    @overload
    def scale(
        self,
        workers: int | None = None,
        *,
        regions: Mapping[str, int] | None = None,
        remove: Sequence[int] = (),
        by: Balance | str = Balance.BINS,
        dry_run: Literal[False] = False,
        timeout: float | None = None,
    ) -> Status: ...

    @overload
    def scale(
        self,
        workers: int | None = None,
        *,
        regions: Mapping[str, int] | None = None,
        remove: Sequence[int] = (),
        by: Balance | str = Balance.BINS,
        dry_run: Literal[True],
        timeout: float | None = None,
    ) -> Forecast: ...

    def scale(
        self,
        workers: int | None = None,
        *,
        regions: Mapping[str, int] | None = None,
        remove: Sequence[int] = (),
        by: Balance | str = Balance.BINS,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Status | Forecast:
        """Change the number of workers while rows flow, in all regions or in those named.

        ``remove`` names workers to empty; ``by`` is what to balance: the number of ``"bins"`` or
        the measured ``"load"``. Returns when the request is durable; the bins move during the
        following steps, as ``status().rescale`` shows. A second request replaces the target.
        ``OperationRefused`` with the reason; ``DeadlinePassed`` if the request is not durable after
        ``timeout`` seconds, while it continues. With ``dry_run`` it changes nothing and returns
        what would move, in how many steps.
        """
        given = tuple((regions or {}).items())
        return self._rescale(Scale(workers, given, tuple(remove), Balance(by)), dry_run, timeout)

    @overload
    def rebalance(
        self, *regions: str, dry_run: Literal[False] = False, timeout: float | None = None
    ) -> Status: ...

    @overload
    def rebalance(
        self, *regions: str, dry_run: Literal[True], timeout: float | None = None
    ) -> Forecast: ...

    def rebalance(
        self, *regions: str, dry_run: bool = False, timeout: float | None = None
    ) -> Status | Forecast:
        """Redistribute the bins over the same workers by measured load; else like ``scale``."""
        return self._rescale(Rebalance(regions), dry_run, timeout)

    def scale_pause(self, timeout: float | None = None) -> Status:
        """Move no more bins until ``scale_resume``; rows keep flowing, and moving bins arrive.

        Returns when that is durable; ``DeadlinePassed`` after ``timeout`` seconds, while it
        continues.
        """
        return self._ask(RescalePipeline(requests.PauseRescale()), timeout)

    def scale_resume(self, timeout: float | None = None) -> Status:
        """Resume a paused rescale; returns and raises like ``scale_pause``."""
        return self._ask(RescalePipeline(requests.ResumeRescale()), timeout)

    def scale_cancel(self, *, roll_back: bool = False, timeout: float | None = None) -> Status:
        """Stop a rescale and leave the bins where they are, or roll it back.

        Returns and raises like ``scale_pause``.
        """
        return self._ask(RescalePipeline(requests.CancelRescale(roll_back)), timeout)

    def scale_history(self) -> tuple[FinishedRescale, ...]:
        """Recent finished rescales, oldest first: the request, what moved, and the outcome."""
        return self.status().rescales

    def profile(
        self,
        worker: int = 0,
        *,
        region: str | None = None,
        heap: bool = False,
        timeout: float | None = None,
    ) -> tuple[TaskProfile, ...]:
        """Profile a worker in the next step that reads rows; returns one profile per task.

        A profile shows where its time goes, function by function; with ``heap``, what it holds in
        memory at the end and which lines allocated it. It covers all regions, or the one named.
        That step is slower; its result is the same. ``OperationRefused`` if there is no such worker
        or region or the pipeline is paused, ``DeadlinePassed`` if no such step comes within
        ``timeout`` seconds.
        """
        kind = ProfileKind.HEAP if heap else ProfileKind.TIME
        asked = ProfileWorker(ProfileRequest(kind, worker, region))
        return self._answer(asked, timeout, "No step has read any rows").profiles

    def status(self) -> Status:
        """The status of the pipeline."""
        return self._driver.status()

    def query(
        self,
        sql: str,
        *,
        limit_rows: int = LIMIT_ROWS,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float | None = None,
    ) -> pa.Table:
        """The rows of one SQL query over the operators' state at the last committed step.

        Each operator is a table of its name: key columns, state columns, ``_worker`` and ``_bin``.
        Names that are not words need double quotes, strings single quotes. Any thread may call
        this, while steps run and after the pipeline has ended. A query that exceeds its limits is
        refused with ``QueryTooLarge`` or cancelled with ``QueryTimeout``; the default of
        ``limit_seconds``, and its maximum, is ``query_seconds`` of the settings. A query can only
        read, and only state: see ``QueryError``.
        """
        longest = self._settings.query_seconds
        seconds = longest if limit_seconds is None else limit_seconds
        if longest and seconds > longest:
            raise ValueError(f"limit_seconds={seconds:g} is more than query_seconds={longest:g}")
        return self._driver.query(sql, limit_rows, limit_bytes, seconds)

    def state(self, operator: str) -> DataFrame | pa.Table:
        """An operator's state at the last committed step, with the columns that ``query`` shows.

        A DataFrame if Spark runs in this process, else an Arrow table. The DataFrame reads the
        files of that step on use: ``SnapshotExpired`` if that is too late.
        """
        queries = self._node.queries
        if queries is None:
            return self.state_table(operator)
        frame: DataFrame = queries.frame(self._node.core.snapshot, operator)
        return frame

    def state_table(self, operator: str) -> pa.Table:
        """An operator's state at the last committed step as an Arrow table, read without Spark."""
        snapshot = self._node.core.snapshot
        try:
            return read_table(snapshot.view(operator), self._directory)
        except SnapshotExpired as error:
            raise missing_or_expired(error, self._node.core.snapshot) from error

    def _rescale(
        self, request: TargetRequest, dry_run: bool, timeout: float | None
    ) -> Status | Forecast:
        if dry_run:
            return self._driver.forecast(request)
        return self._ask(RescalePipeline(request), timeout)

    def _ask(self, operation: Operation, timeout: float | None) -> Status:
        self._answer(operation, timeout, "The request is not durable")
        return self.status()

    def _answer(self, operation: Operation, timeout: float | None, late: str) -> Answered:
        answered = self._driver.ask(operation, timeout)
        if answered.failure is not None:
            raise error_of(answered.failure)
        if answered.waiting:
            raise DeadlinePassed(
                f"{late} within {timeout or 0:g} s",
                do="It was accepted and continues: see status().",
            )
        return answered
