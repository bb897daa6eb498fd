"""The phases of the coordinator. Each holds only the data that is valid in it.

Every phase that waits for another process knows since when.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.coordinator.operations import RescalePipeline
from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import Failure, OpenOrder, StepResult
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.plan import Plan


class NotBegun(msgspec.Struct, frozen=True):
    """Nothing has happened yet."""


class Leading(msgspec.Struct, frozen=True):
    """The coordinator is trying to become the leader."""


class ReadingJournal(msgspec.Struct, frozen=True):
    """The journal is being read."""


class Meeting(msgspec.Struct, frozen=True):
    """The node is being found or started."""

    since: float


class Identifying(msgspec.Struct, frozen=True):
    """The identity of a new directory is being written."""


class Opening(msgspec.Struct, frozen=True):
    """The node opens state."""

    order: OpenOrder
    since: float


class Idle(msgspec.Struct, frozen=True):
    """No step is running."""


class Taking(msgspec.Struct, frozen=True):
    """The input of the next step is being taken. ``clock_ns`` is when that began."""

    step: int
    since: float
    trigger: Trigger
    clock_ns: int = 0


class Planning(msgspec.Struct, frozen=True):
    """A plan is being made durable."""

    plan: Plan
    trigger: Trigger


class Stepping(msgspec.Struct, frozen=True):
    """The node runs a step. In a replay, ``replayed`` is its commit.

    ``given`` is when the order was last given; without a reaction it is repeated.
    """

    plan: Plan
    since: float
    trigger: Trigger
    replayed: Commit | None = None
    cancelled: float | None = None
    fetching: bool = False
    given: float = 0.0


class Committing(msgspec.Struct, frozen=True):
    """A step's commit is being made durable.

    ``seconds`` is the step's duration; ``requests`` for a rescale become durable with it.
    """

    plan: Plan
    result: StepResult
    since: float
    trigger: Trigger
    seconds: float = 0.0
    requests: tuple[tuple[int, RescalePipeline], ...] = ()


class Recalling(msgspec.Struct, frozen=True):
    """The plan and the commit of a step to replay are being read."""

    step: int


class Repairing(msgspec.Struct, frozen=True):
    """The result of a replay is being made durable."""


class Branching(msgspec.Struct, frozen=True):
    """A branch is being made, to rewind to a checkpoint."""

    checkpoint: Checkpoint
    number: int


class Closing(msgspec.Struct, frozen=True):
    """The node publishes committed output and closes; then the pipeline ends."""

    since: float
    failure: Failure | None = None


class Ended(msgspec.Struct, frozen=True):
    """The pipeline is over."""

    failure: Failure | None = None


AnyPhase: TypeAlias = (
    NotBegun
    | Leading
    | ReadingJournal
    | Meeting
    | Identifying
    | Opening
    | Idle
    | Taking
    | Planning
    | Stepping
    | Committing
    | Recalling
    | Repairing
    | Branching
    | Closing
    | Ended
)
