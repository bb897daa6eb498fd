"""The effects that the machine can request, each a small frozen class.

The driver performs an effect and turns its outcome into the event that the class names.
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
    """Become the leader; with ``take_over`` even if another one lives. Outcome: ``Led``."""

    take_over: bool


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """Read the journal. Outcome: ``JournalRead``."""


@dataclass(frozen=True, slots=True)
class FindNode:
    """Find the node by its address in the directory, or start one, and listen to it.

    Its reports become ``NodeReported``, its end ``NodeLost``.
    """

    peer: str = NODE


@dataclass(frozen=True, slots=True)
class ReplaceNode:
    """Kill the node and start another one. Outcomes as for ``FindNode``."""

    why: str
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class Give:
    """Give a peer an order. The peer reports the outcome."""

    order: NodeOrder
    to: str = NODE


@dataclass(frozen=True, slots=True)
class Take:
    """Take the input of the offer for a step. Outcome: ``InputTaken``."""

    step: int
    to: str = NODE


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the result of a step. Outcome: ``ResultFetched``."""

    step: int
    revision: int
    to: str = NODE


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """Write the directory's identity, which the driver draws. Outcome: ``IdentityWritten``."""

    dataflow: str
    bins: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Make a plan durable. Outcome: ``PlanWritten``."""

    branch: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class WriteCommit:
    """Commit a step. Outcome: ``CommitWritten``."""

    branch: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Write a checkpoint. Outcome: ``CheckpointWritten``."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class WriteRepair:
    """Make the result of a replay durable. Outcome: ``RepairWritten``."""

    branch: int
    repair: Repair


@dataclass(frozen=True, slots=True)
class WritePublished:
    """Record that every sink has the output up to a step."""

    branch: int
    step: int


@dataclass(frozen=True, slots=True)
class MakeBranch:
    """Make a new branch that starts at a checkpoint. Outcome: ``BranchMade``."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Read the plan and the commit of a step. Outcome: ``StepRead``."""

    branch: int
    step: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Fold entries below a step into a segment; remove all checkpoints but those to keep.

    Outcome: ``JournalTrimmed``.
    """

    branch: int
    below: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """The figures of a committed step. ``lag`` is what waited of each source when it was planned.

    ``rows_merged`` counts the state rows that compaction read. ``moved`` is the step's part of a
    rescale, None without one. ``homes`` are the bytes of state that tasks read and copied.
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
    """Show a committed step to watchers."""

    done: StepDone


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request by its number; with ``failure`` it was refused or failed."""

    number: int
    failure: Failure | None = None
    step: int | None = None
    profiles: tuple[TaskProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class EndPipeline:
    """End the pipeline: completed, stopped, or failed."""

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
