"""The names of journal entries: what each kind is about, and its path in the journal.

>>> print(IdentityName(), LeaderName(3), CommitName(7), PlanName(7, revision=2, branch=1))
identity leader/3 commit/0/000000000007 plan/1/000000000007.2
"""

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
class _NumberedName:
    number: int
    kind: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.kind}/{self.number}"


class LeaderName(_NumberedName):
    """The statement of who coordinates. The highest number counts."""

    __slots__ = ()
    kind = "leader"


class BranchName(_NumberedName):
    """A line of steps that left another one. The first line is 0 and has no entry."""

    __slots__ = ()
    kind = "branch"


@dataclass(frozen=True, slots=True, order=True)
class _OneOfStep:
    """The name of what there is one of for each step of a branch."""

    step: int
    branch: int = 0
    kind: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.kind}/{self.branch}/{self.step:012d}"


class CommitName(_OneOfStep):
    """The commit of a step."""

    __slots__ = ()
    kind = "commit"


class PublishedName(_OneOfStep):
    """The statement that the output of a step and of all before it is published."""

    __slots__ = ()
    kind = "published"


class CheckpointName(_OneOfStep):
    """A kept step."""

    __slots__ = ()
    kind = "checkpoint"


class SegmentName(_OneOfStep):
    """What all steps below ``step``, the floor, came to, after they were removed."""

    __slots__ = ()
    kind = "segment"


@dataclass(frozen=True, slots=True, order=True)
class _RevisionOfStep:
    """The name of what a step may have several of. The highest revision counts."""

    step: int
    revision: int
    branch: int = 0
    kind: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.kind}/{self.branch}/{self.step:012d}.{self.revision}"


class PlanName(_RevisionOfStep):
    """A revision of the plan of a step."""

    __slots__ = ()
    kind = "plan"


class RepairName(_RevisionOfStep):
    """The state at a step after a replay."""

    __slots__ = ()
    kind = "repair"


#: The entries that are about one step.
StepName: TypeAlias = PlanName | CommitName | PublishedName | CheckpointName | RepairName

EntryName: TypeAlias = IdentityName | LeaderName | BranchName | StepName | SegmentName

#: The kinds that have a directory for each branch.
BRANCHED = tuple(
    name.kind
    for name in (PlanName, CommitName, PublishedName, CheckpointName, RepairName, SegmentName)
)
