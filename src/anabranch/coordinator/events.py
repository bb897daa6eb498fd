"""The events that the machine handles, each a small frozen class.

An event has already happened. Outcomes of effects are events too, including failures.
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
    """The time of an event: monotonic seconds, and the wall clock."""

    seconds: float
    clock_ns: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The process has started."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time at which the machine wanted to wake has come."""


@dataclass(frozen=True, slots=True)
class Led:
    """This coordinator leads; leaders with lower numbers can no longer commit."""

    leader: int
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalRead:
    """The journal has been read."""

    journal: JournalView


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A report of the node has arrived."""

    report: NodeReport
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node's process has ended or does not answer."""

    failure: Failure
    peer: str = NODE


@dataclass(frozen=True, slots=True)
class InputTaken:
    """The input of an offer, now fixed."""

    step: int
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class ResultFetched:
    """The result of a step that the node has run."""

    result: StepResult


@dataclass(frozen=True, slots=True)
class IdentityWritten:
    """The directory has this identity, no matter who wrote it."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class PlanWritten:
    """A plan is durable: ours, or one that was written first."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class CommitWritten:
    """A step is committed, by us or by another coordinator that was first."""

    commit: Commit
    ours: bool


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint is durable."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class JournalTrimmed:
    """The journal is trimmed and holds no other checkpoints than these."""

    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRead:
    """The plan and the commit of a step to replay."""

    plan: Plan
    commit: Commit


@dataclass(frozen=True, slots=True)
class RepairWritten:
    """The result of a replay is durable."""

    repair: Repair


@dataclass(frozen=True, slots=True)
class BranchMade:
    """A new branch is durable."""

    journal: JournalView


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """An effect has failed."""

    effect: Effect
    failure: Failure


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """Another coordinator has taken over and fenced this one."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Asked:
    """A user's request, to be answered by its number."""

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
