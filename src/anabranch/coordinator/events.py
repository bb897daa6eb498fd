"""The events that the machine handles, each a small frozen class.

An event has already happened. Outcomes of effects are events too, including failures.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.coordinator.effects import Effect
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.operations import Operation
from anabranch.protocol.node import Failure, NodeReport, StepResult
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.leader import NODE, Identity, Member
from anabranch.records.plan import Input, Plan


class Moment(msgspec.Struct, frozen=True):
    """The time of an event: monotonic seconds, and the wall clock."""

    seconds: float
    clock_ns: int


class Begun(msgspec.Struct, frozen=True):
    """The process has started."""


class TimePassed(msgspec.Struct, frozen=True):
    """The time at which the machine wanted to wake has come."""


class Led(msgspec.Struct, frozen=True):
    """This coordinator leads; leaders with lower numbers can no longer commit."""

    leader: int
    members: tuple[Member, ...] = ()


class JournalRead(msgspec.Struct, frozen=True):
    """The journal has been read."""

    journal: JournalView


class NodeReported(msgspec.Struct, frozen=True):
    """A report of the node has arrived."""

    report: NodeReport
    peer: str = NODE


class NodeLost(msgspec.Struct, frozen=True):
    """The node's process has ended or does not answer."""

    failure: Failure
    peer: str = NODE


class InputTaken(msgspec.Struct, frozen=True):
    """The input of an offer, now fixed."""

    step: int
    inputs: tuple[Input, ...]


class ResultFetched(msgspec.Struct, frozen=True):
    """The result of a step that the node has run."""

    result: StepResult


class IdentityWritten(msgspec.Struct, frozen=True):
    """The directory has this identity, no matter who wrote it."""

    identity: Identity


class PlanWritten(msgspec.Struct, frozen=True):
    """A plan is durable: ours, or one that was written first."""

    plan: Plan


class CommitWritten(msgspec.Struct, frozen=True):
    """A step is committed, by us or by another coordinator that was first."""

    commit: Commit
    ours: bool


class CheckpointWritten(msgspec.Struct, frozen=True):
    """A checkpoint is durable."""

    checkpoint: Checkpoint


class JournalTrimmed(msgspec.Struct, frozen=True):
    """The journal is trimmed and holds no other checkpoints than these."""

    checkpoints: tuple[int, ...]


class StepRead(msgspec.Struct, frozen=True):
    """The plan and the commit of a step to replay."""

    plan: Plan
    commit: Commit


class RepairWritten(msgspec.Struct, frozen=True):
    """The result of a replay is durable."""

    repair: Repair


class BranchMade(msgspec.Struct, frozen=True):
    """A new branch is durable."""

    journal: JournalView


class EffectFailed(msgspec.Struct, frozen=True):
    """An effect has failed."""

    effect: Effect
    failure: Failure


class LeaderFenced(msgspec.Struct, frozen=True):
    """Another coordinator has taken over and fenced this one."""

    failure: Failure


class Asked(msgspec.Struct, frozen=True):
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
