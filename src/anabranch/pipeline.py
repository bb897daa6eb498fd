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
from anabranch.node.inline import InlineNode
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
        self, directory: Path, driver: Driver, node: InlineNode, settings: Settings
    ) -> None:
        """``driver`` is started by the caller."""
        self._directory = directory
        self._driver = driver
        self._node = node
        self._settings = settings

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the pipeline has ended, or for so many seconds; raise what made it fail.

        A pipeline ends when all its sources have ended and everything is published, when it is
        shut down, or when a step fails.
        """
        if self._driver.wait(timeout):
            failure = self._driver.failure()
            if failure is not None:
                raise failure
        return self.status()

    def shutdown(self) -> Status:
        """Finish the step under way, publish what is committed, keep a checkpoint, and end.

        Running the same dataflow in the same directory continues after the last step.
        """
        self._driver.ask(ShutDownPipeline(), 0.0)
        return self.wait()

    def pause(self, *, source: str | None = None) -> Status:
        """Plan no further step; the one under way is finished. Returns at once.

        With the name of a ``source``, ask nothing more of that one, and go on with everything
        else. What it has offered already is still read, by the next step or two. It holds until
        the source is started again, or the pipeline anew; until then the pipeline does not
        complete, unless the source has ended. ``OperationRefused`` where there is no such source.
        """
        return self._asked(PausePipeline() if source is None else PauseSource(source), None)

    def start(self, *, source: str | None = None) -> Status:
        """Go on after a pause; with the name of a ``source``, after a pause of that one.

        It goes on where it stood. Sources that are paused stay so when the pipeline goes on.
        """
        return self._asked(StartPipeline() if source is None else StartSource(source), None)

    def checkpoint(self, timeout: float | None = None) -> Status:
        """Keep the last committed step; returns when that is durable.

        Raises ``OperationRefused`` before the first step and when the pipeline is over, and
        ``DeadlinePassed`` if it takes more than ``timeout`` seconds: it goes on.
        """
        return self._asked(TakeCheckpoint(), timeout)

    def load(self, step: int, *, accept_duplicates: bool = False) -> Status:
        """Go back to a kept checkpoint; the steps after it are left behind in a branch of theirs.

        Sinks take back what they have published since. ``OperationRefused`` if the step is not
        kept, or if a sink cannot take back and duplicates are not accepted.
        """
        return self._asked(LoadCheckpoint(step, accept_duplicates), None)

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
        """Go to so many workers while rows flow: in all regions, or in those named.

        ``remove`` names workers that are to have no bins; ``by`` says what is to be equal on all
        workers: the number of ``"bins"``, or the measured ``"load"``. Returns when the request is
        durable; the bins move over the steps that follow, as ``status().rescale`` shows. A second
        request replaces the target from where things are. ``OperationRefused`` with the reason;
        ``DeadlinePassed`` if the request is not durable after ``timeout`` seconds: it goes on.
        With ``dry_run`` nothing is changed: it gives what would be moved, in how many steps.
        """
        given = tuple((regions or {}).items())
        return self._wanted(Scale(workers, given, tuple(remove), Balance(by)), dry_run, timeout)

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
        """Share the bins anew among the same workers, by their measured load; as ``scale`` does."""
        return self._wanted(Rebalance(regions), dry_run, timeout)

    def scale_pause(self, timeout: float | None = None) -> Status:
        """Hand no more bins over until ``scale_resume``; rows go on. What is on its way arrives.

        Returns when that is durable; ``DeadlinePassed`` after ``timeout`` seconds: it goes on.
        """
        return self._asked(RescalePipeline(requests.PauseRescale()), timeout)

    def scale_resume(self, timeout: float | None = None) -> Status:
        """Go on with a rescale that was paused; returns and raises as ``scale_pause`` does."""
        return self._asked(RescalePipeline(requests.ResumeRescale()), timeout)

    def scale_cancel(self, *, roll_back: bool = False, timeout: float | None = None) -> Status:
        """Leave the bins where they are; or, rolling back, bring them back to where they were.

        Returns and raises as ``scale_pause`` does.
        """
        return self._asked(RescalePipeline(requests.CancelRescale(roll_back)), timeout)

    def scale_history(self) -> tuple[FinishedRescale, ...]:
        """The last rescales that are over, oldest first: what was asked, moved, and the outcome."""
        return self.status().rescales

    def profile(
        self,
        worker: int = 0,
        *,
        region: str | None = None,
        heap: bool = False,
        timeout: float | None = None,
    ) -> tuple[TaskProfile, ...]:
        """What a worker spends in the next step that reads something, one profile for each task.

        Where its time goes, function by function; or, with ``heap``, what it holds in memory at the
        end and which lines have allocated it. In all its regions, or in the one named. The step is
        slower for it, and comes to the same. ``OperationRefused`` where there is no such worker or
        region and while the pipeline is paused, ``DeadlinePassed`` if no such step comes within
        ``timeout`` seconds.
        """
        kind = ProfileKind.HEAP if heap else ProfileKind.TIME
        asked = ProfileWorker(ProfileRequest(kind, worker, region))
        return self._answered(asked, timeout, "No step has come that reads something").profiles

    def status(self) -> Status:
        """Where the pipeline stands."""
        return self._driver.status()

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
        longest = self._settings.query_seconds
        seconds = longest if limit_seconds is None else limit_seconds
        if longest and seconds > longest:
            raise ValueError(f"limit_seconds={seconds:g} is more than query_seconds={longest:g}")
        return self._driver.query(sql, limit_rows, limit_bytes, seconds)

    def state(self, operator: str) -> DataFrame | pa.Table:
        """An operator's state at the last committed step, with the columns that ``query`` shows.

        A DataFrame where Spark runs in this process, else an Arrow table. The DataFrame reads the
        files of that step when it is used: ``SnapshotExpired`` when it is used too late.
        """
        queries = self._node.queries
        if queries is None:
            return self.state_table(operator)
        frame: DataFrame = queries.frame(self._node.snapshot, operator)
        return frame

    def state_table(self, operator: str) -> pa.Table:
        """An operator's state at the last committed step, read here: key columns, state columns."""
        snapshot = self._node.snapshot
        try:
            return read_table(snapshot.view(operator), self._directory)
        except SnapshotExpired as error:
            raise missing_or_expired(error, self._node.snapshot) from error

    def _wanted(
        self, request: TargetRequest, dry_run: bool, timeout: float | None
    ) -> Status | Forecast:
        return (
            self._driver.forecast(request)
            if dry_run
            else self._asked(RescalePipeline(request), timeout)
        )

    def _asked(self, operation: Operation, timeout: float | None) -> Status:
        self._answered(operation, timeout, "What was asked is not durable")
        return self.status()

    def _answered(self, operation: Operation, timeout: float | None, late: str) -> Answered:
        answered = self._driver.ask(operation, timeout)
        if answered.failure is not None:
            raise error_of(answered.failure)
        if answered.waiting:
            raise DeadlinePassed(
                f"{late} within {timeout or 0:g} s",
                do="It was taken and goes on: ask status().",
            )
        return answered
