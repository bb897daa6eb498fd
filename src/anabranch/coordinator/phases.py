"""The phases of the coordinator. Each holds only the data that is valid in it.

Every phase that waits for another process knows since when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import Failure, OpenOrder, StepResult
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.plan import Plan


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Nothing has happened yet."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The coordinator is trying to become the leader."""


@dataclass(frozen=True, slots=True)
class ReadingJournal:
    """The journal is being read."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The node is being found or started."""

    since: float


@dataclass(frozen=True, slots=True)
class Identifying:
    """The identity of a new directory is being written."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The node opens state."""

    order: OpenOrder
    since: float


@dataclass(frozen=True, slots=True)
class Idle:
    """No step is running."""


@dataclass(frozen=True, slots=True)
class Taking:
    """The input of the next step is being taken."""

    step: int
    since: float
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class Planning:
    """A plan is being made durable."""

    plan: Plan
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class Stepping:
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


@dataclass(frozen=True, slots=True)
class Committing:
    """A step's commit is being made durable.

    ``seconds`` is the step's duration; ``numbers`` are the requests that become durable with it.
    """

    plan: Plan
    result: StepResult
    since: float
    trigger: Trigger
    seconds: float = 0.0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalling:
    """The plan and the commit of a step to replay are being read."""

    step: int


@dataclass(frozen=True, slots=True)
class Repairing:
    """The result of a replay is being made durable."""


@dataclass(frozen=True, slots=True)
class Branching:
    """A branch is being made, to rewind to a checkpoint."""

    checkpoint: Checkpoint
    number: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The node publishes committed output and closes; then the pipeline ends."""

    since: float
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Ended:
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
