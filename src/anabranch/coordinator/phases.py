"""What the coordinator is in the middle of: each phase has only the data that is valid in it.

Every phase that waits for somebody else knows since when.
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
    """It is not known yet whether this coordinator may lead."""


@dataclass(frozen=True, slots=True)
class ReadingJournal:
    """It is not known yet where the pipeline stands."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The node is being found or started."""

    since: float


@dataclass(frozen=True, slots=True)
class Identifying:
    """The directory is new and gets its identity."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The node opens state."""

    order: OpenOrder
    since: float


@dataclass(frozen=True, slots=True)
class Idle:
    """No step is under way."""


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
    """The node runs a step. ``replayed`` is its commit, if it has one already.

    ``given`` is when the order was given last: one that has left no trace is given again.
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

    ``seconds`` is how long the step took, ``numbers`` are requests that become durable with it.
    """

    plan: Plan
    result: StepResult
    since: float
    trigger: Trigger
    seconds: float = 0.0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalling:
    """The plan and the commit of a step that is to be replayed are being read."""

    step: int


@dataclass(frozen=True, slots=True)
class Repairing:
    """The end of a replay is being made durable."""


@dataclass(frozen=True, slots=True)
class Branching:
    """A branch is being made, because somebody wants to go back to a checkpoint."""

    checkpoint: Checkpoint
    number: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The node publishes what is committed and lets go; then the pipeline is over."""

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
