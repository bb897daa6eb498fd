"""The names of journal entries: what each kind is about, and its path in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class IdentityName:
    """The entry that says whose journal this is."""

    kind: ClassVar[str] = "identity"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return self.kind


@dataclass(frozen=True, slots=True, order=True)
class LeaderName:
    """The statement of who coordinates. The highest number counts.

    >>> str(LeaderName(number=3))
    'leader/3'
    """

    number: int
    kind: ClassVar[str] = "leader"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class BranchName:
    """A line of steps that left another one. The first line is 0 and has no entry.

    >>> str(BranchName(number=1))
    'branch/1'
    """

    number: int
    kind: ClassVar[str] = "branch"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class PlanName:
    """A revision of the plan of a step.

    >>> str(PlanName(step=7, revision=2))
    'plan/0/000000000007.2'
    """

    step: int
    revision: int
    branch: int = 0
    kind: ClassVar[str] = "plan"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}.{self.revision}"


@dataclass(frozen=True, slots=True, order=True)
class CommitName:
    """The commit of a step.

    >>> str(CommitName(step=7))
    'commit/0/000000000007'
    """

    step: int
    branch: int = 0
    kind: ClassVar[str] = "commit"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}"


@dataclass(frozen=True, slots=True, order=True)
class PublishedName:
    """The statement that the output of a step and of all before it is published.

    >>> str(PublishedName(step=7))
    'published/0/000000000007'
    """

    step: int
    branch: int = 0
    kind: ClassVar[str] = "published"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """A kept step.

    >>> str(CheckpointName(step=7, branch=1))
    'checkpoint/1/000000000007'
    """

    step: int
    branch: int = 0
    kind: ClassVar[str] = "checkpoint"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}"


@dataclass(frozen=True, slots=True, order=True)
class RepairName:
    """The state at a step after a replay. The highest number counts.

    >>> str(RepairName(step=7, number=1))
    'repair/0/000000000007.1'
    """

    step: int
    number: int
    branch: int = 0
    kind: ClassVar[str] = "repair"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.step:012d}.{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What all steps below ``floor`` came to, after they were removed.

    >>> str(SegmentName(floor=7))
    'segment/0/000000000007'
    """

    floor: int
    branch: int = 0
    kind: ClassVar[str] = "segment"

    def __str__(self) -> str:
        """Give the path of the entry in the journal."""
        return f"{self.kind}/{self.branch}/{self.floor:012d}"


#: The entries that are about one step.
StepName: TypeAlias = PlanName | CommitName | PublishedName | CheckpointName | RepairName

EntryName: TypeAlias = IdentityName | LeaderName | BranchName | StepName | SegmentName

#: The kinds that have a directory for each branch.
BRANCHED = tuple(
    name.kind
    for name in (PlanName, CommitName, PublishedName, CheckpointName, RepairName, SegmentName)
)
