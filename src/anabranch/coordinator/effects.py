"""Everything that the coordinator can ask for: each kind is a small frozen class.

The driver performs an effect and turns its outcome into an event, which each class names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.protocol.node import Failure, NodeOrder
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.home_use import HomeUse
from anabranch.records.leader import NODE
from anabranch.records.plan import Plan
from anabranch.records.profiles import TaskProfile
from anabranch.rescale.step_summary import StepMoved


@dataclass(frozen=True, slots=True)
class Lead:
    """Become the leader; with ``take_over`` also where another one lives. Gives ``Led``."""

    take_over: bool


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """Find out where the pipeline stands. Gives ``JournalRead``."""


@dataclass(frozen=True, slots=True)
class FindNode:
    """Find the node by its address in the directory, or start one.

    From then on it is listened to: its reports are ``NodeReported``, its end is ``NodeLost``.
    """

    peer: str = NODE


@dataclass(frozen=True, slots=True)
class ReplaceNode:
    """End the node, whatever it is doing, and start another one. Outcomes as of ``FindNode``."""

    why: str
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class Give:
    """Give a peer an order. What comes of it, the peer reports."""

    order: NodeOrder
    to: str = NODE


@dataclass(frozen=True, slots=True)
class Take:
    """Take the input of the offer for a step. Gives ``InputTaken``."""

    step: int
    to: str = NODE


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the result of a step. Gives ``ResultFetched``."""

    step: int
    revision: int
    to: str = NODE


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """Say whose directory this is; the driver draws an identity. Gives ``IdentityWritten``."""

    dataflow: str
    bins: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Make a plan durable. Gives ``PlanWritten``."""

    branch: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class WriteCommit:
    """Commit a step. Gives ``CommitWritten``."""

    branch: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Keep a step. Gives ``CheckpointWritten``."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class WriteRepair:
    """End a replay. Gives ``RepairWritten``."""

    branch: int
    repair: Repair


@dataclass(frozen=True, slots=True)
class WritePublished:
    """Say durably that every sink has the output up to a step."""

    branch: int
    step: int


@dataclass(frozen=True, slots=True)
class MakeBranch:
    """Leave the branch after a checkpoint. Gives ``BranchMade``."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Read the plan and the commit of a step. Gives ``StepRead``."""

    branch: int
    step: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Fold entries below a step into a segment; remove all checkpoints but those to keep.

    Gives ``JournalTrimmed``.
    """

    branch: int
    below: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """A committed step in numbers. ``lag`` is what waited of each source when it was planned.

    ``rows_merged`` are the state rows that compaction has read. ``moved`` is what the step
    did of a rescale, None while there is none; ``homes`` the bytes of state that tasks have read
    and copied.
    """

    step: int
    rows: int
    keys: int
    seconds: float
    parts: dict[str, float]
    trigger: str = ""
    lag: dict[str, int] = field(default_factory=dict)
    rows_merged: int = 0
    moved: StepMoved | None = None
    homes: HomeUse = field(default_factory=HomeUse)


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell those who watch of a committed step."""

    done: StepDone


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer what was asked under a number; with a failure, it was refused or came to nothing."""

    number: int
    failure: Failure | None = None
    step: int | None = None
    profiles: tuple[TaskProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class EndPipeline:
    """The pipeline is over: completed, stopped, or failed for this reason."""

    failure: Failure | None = None


Effect: TypeAlias = (
    Lead
    | ReadJournal
    | FindNode
    | ReplaceNode
    | Give
    | Take
    | Fetch
    | WriteIdentity
    | WritePlan
    | WriteCommit
    | WriteCheckpoint
    | WriteRepair
    | WritePublished
    | MakeBranch
    | ReadStep
    | Trim
    | Announce
    | Answer
    | EndPipeline
)
