"""The interface of a running coordinator to HTTP, the shell and Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec
import pyarrow as pa

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.operations import Operation
from anabranch.protocol.node import Failure, ProgramInfo
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.protocol.status import Status
from anabranch.records.profiles import TaskProfile
from anabranch.rescale.forecast import Forecast


class Answered(msgspec.Struct, frozen=True):
    """The outcome of an operation: done (with its step), refused, or still in progress.

    ``waiting``: the operation was accepted and has not finished within the caller's time.
    ``profiles`` is set if they were requested.
    """

    failure: Failure | None = None
    step: int | None = None
    waiting: bool = False
    profiles: tuple[TaskProfile, ...] = ()


class Coordinator(Protocol):
    """A running coordinator. Thread-safe; only ``ask`` waits for steps."""

    def status(self) -> Status:
        """What the pipeline is doing now."""

    def info(self) -> ProgramInfo | None:
        """The dataflow that the node has loaded; None before its first report."""

    def ask(self, operation: Operation, seconds: float | None) -> Answered:
        """Request an operation, and wait up to ``seconds`` for its outcome."""

    def forecast(self, request: TargetRequest) -> Forecast:
        """Predict a rescale without changing anything. Raises ``OperationRefused``."""

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """The rows of one SQL query over the state at the last committed step."""

    def steps(self, seconds: float) -> Iterator[StepDone | None]:
        """Every committed step from now on; None after each ``seconds`` without one.

        Ends with the pipeline. A slow caller misses steps.
        """
