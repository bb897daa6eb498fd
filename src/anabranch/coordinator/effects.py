"""The effects that the machine can request, each a small frozen class.

The driver performs an effect and turns its outcome into the event that the class names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from anabranch.protocol.node import Failure, NodeOrder
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.home_use import HomeUse
from anabranch.records.leader import NODE
from anabranch.records.plan import Plan
from anabranch.records.profiles import TaskProfile
from anabranch.rescale.moved_counts import StepMoved


class Lead(msgspec.Struct, frozen=True):
    """Become the leader; with ``take_over`` even if another one lives. Outcome: ``Led``."""

    take_over: bool


class ReadJournal(msgspec.Struct, frozen=True):
    """Read the journal. Outcome: ``JournalRead``."""


class FindNode(msgspec.Struct, frozen=True):
    """Find the node by its address in the directory, or start one, and listen to it.

    Its reports become ``NodeReported``, its end ``NodeLost``.
    """

    peer: str = NODE


class ReplaceNode(msgspec.Struct, frozen=True):
    """Kill the node and start another one. Outcomes as for ``FindNode``."""

    why: str
    peer: str = NODE


class Give(msgspec.Struct, frozen=True):
    """Give a peer an order. The peer reports the outcome."""

    order: NodeOrder
    to: str = NODE


class Take(msgspec.Struct, frozen=True):
    """Take the input of the offer for a step. Outcome: ``InputTaken``."""

    step: int
    to: str = NODE


class Fetch(msgspec.Struct, frozen=True):
    """Fetch the result of a step. Outcome: ``ResultFetched``."""

    step: int
    revision: int
    to: str = NODE


class WriteIdentity(msgspec.Struct, frozen=True):
    """Write the directory's identity, which the driver draws. Outcome: ``IdentityWritten``."""

    dataflow: str
    bins: int


class WritePlan(msgspec.Struct, frozen=True):
    """Make a plan durable. Outcome: ``PlanWritten``."""

    branch: int
    plan: Plan


class WriteCommit(msgspec.Struct, frozen=True):
    """Commit a step. Outcome: ``CommitWritten``."""

    branch: int
    commit: Commit


class WriteCheckpoint(msgspec.Struct, frozen=True):
    """Write a checkpoint. Outcome: ``CheckpointWritten``."""

    checkpoint: Checkpoint


class WriteRepair(msgspec.Struct, frozen=True):
    """Make the result of a replay durable. Outcome: ``RepairWritten``."""

    branch: int
    repair: Repair


class WritePublished(msgspec.Struct, frozen=True):
    """Record that every sink has the output up to a step."""

    branch: int
    step: int


class MakeBranch(msgspec.Struct, frozen=True):
    """Make a new branch that starts at a checkpoint. Outcome: ``BranchMade``."""

    checkpoint: Checkpoint


class ReadStep(msgspec.Struct, frozen=True):
    """Read the plan and the commit of a step. Outcome: ``StepRead``."""

    branch: int
    step: int


class Trim(msgspec.Struct, frozen=True):
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


class Announce(msgspec.Struct, frozen=True):
    """Show a committed step to watchers."""

    done: StepDone


class Answer(msgspec.Struct, frozen=True):
    """Answer a request by its number; with ``failure`` it was refused or failed."""

    number: int
    failure: Failure | None = None
    step: int | None = None
    profiles: tuple[TaskProfile, ...] = ()


class EndPipeline(msgspec.Struct, frozen=True):
    """End the pipeline: completed, stopped, or failed."""

    failure: Failure | None = None


JournalEffect: TypeAlias = (
    ReadJournal
    | WriteIdentity
    | WritePlan
    | WriteCommit
    | WriteCheckpoint
    | WriteRepair
    | WritePublished
    | MakeBranch
    | ReadStep
    | Trim
)
Effect: TypeAlias = (
    JournalEffect
    | Lead
    | FindNode
    | ReplaceNode
    | Give
    | Take
    | Fetch
    | Announce
    | Answer
    | EndPipeline
)
