"""Everything that can happen to the coordinator: each kind is a small frozen class.

An event says what has already happened. Outcomes of effects are events too, failures included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from anabranch.coordinator.effects import Effect
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.operations import Operation
from anabranch.protocol.node import Failure, NodeReport, StepResult
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.leader import NODE, Identity, Member
from anabranch.records.plan import Input, Plan


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened: seconds that never go back, and the wall's clock."""

    seconds: float
    clock_ns: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The process has started."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is as late as the machine wanted to be woken, or later."""


@dataclass(frozen=True, slots=True)
class Led:
    """This coordinator leads now; lower numbers cannot commit any more."""

    leader: int
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalRead:
    """Where the pipeline stands."""

    journal: JournalView


@dataclass(frozen=True, slots=True)
class NodeReported:
    """The node said what it is doing."""

    report: NodeReport
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node's process has ended, or it has not answered for too long."""

    failure: Failure
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class InputTaken:
    """The input of an offer, which is fixed from now on."""

    step: int
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class ResultFetched:
    """The result of a step that the node has run."""

    result: StepResult


@dataclass(frozen=True, slots=True)
class IdentityWritten:
    """The directory has an identity: this one, whoever wrote it."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class PlanWritten:
    """A plan is durable: ours, or that of whoever was first."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class CommitWritten:
    """A step is committed, by us or by whoever was first."""

    commit: Commit
    ours: bool


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint is durable."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class JournalTrimmed:
    """No checkpoint but these is in the journal any more."""

    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRead:
    """The plan and the commit of a step that is to be replayed."""

    plan: Plan
    commit: Commit


@dataclass(frozen=True, slots=True)
class RepairWritten:
    """A replay has come to its end, durably."""

    repair: Repair


@dataclass(frozen=True, slots=True)
class BranchMade:
    """A branch is durable. Steps go on in it."""

    journal: JournalView


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """An effect could not be performed."""

    effect: Effect
    failure: Failure


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """Another coordinator has taken over: nothing of ours counts any more."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants something, and waits for the answer to this number."""

    number: int
    operation: Operation


Event: TypeAlias = (
    Begun
    | TimePassed
    | Led
    | JournalRead
    | NodeReported
    | NodeLost
    | InputTaken
    | ResultFetched
    | IdentityWritten
    | PlanWritten
    | CommitWritten
    | CheckpointWritten
    | JournalTrimmed
    | StepRead
    | RepairWritten
    | BranchMade
    | EffectFailed
    | LeaderFenced
    | Asked
)
