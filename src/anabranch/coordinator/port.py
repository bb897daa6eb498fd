"""What HTTP, the shell and Python see of a running coordinator."""

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
    """What became of an operation: done (with the step it was about), refused, or still going on.

    ``waiting``: the operation was taken and is not over within the time that the caller gave it.
    ``profiles`` are there where they were asked for.
    """

    failure: Failure | None = None
    step: int | None = None
    waiting: bool = False
    profiles: tuple[TaskProfile, ...] = ()


class Coordinator(Protocol):
    """A running coordinator. Any thread may call; nothing here waits for a step but ``ask``."""

    def status(self) -> Status:
        """What the pipeline is doing now."""
        ...

    def info(self) -> ProgramInfo | None:
        """The dataflow that the node has loaded; None until a node was met."""
        ...

    def ask(self, operation: Operation, seconds: float | None) -> Answered:
        """Ask for an operation, and wait so many seconds at most for what becomes of it."""
        ...

    def forecast(self, request: TargetRequest) -> Forecast:
        """What a rescale would come to; nothing is changed. ``OperationRefused``."""
        ...

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """The rows of one SQL query over the state at the last committed step."""
        ...

    def steps(self, seconds: float) -> Iterator[StepDone | None]:
        """Every committed step from now on; None whenever so many seconds went by without one.

        Ends with the pipeline. A caller that is slow misses steps and is not waited for.
        """
        ...
