"""The names in a journal's directory, by kind and in order.

Whatever is not the name of an entry is passed over. Nothing is opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anabranch.journal.entry_names import (
    BRANCHED,
    BranchName,
    CheckpointName,
    CommitName,
    EntryName,
    LeaderName,
    PlanName,
    PublishedName,
    RepairName,
    SegmentName,
    StepName,
)
from anabranch.journal.port import JournalDirectory

_NUMBER = re.compile(r"\d{1,9}")
_STEP_NAME = re.compile(r"\d{12}")
_NUMBERED_STEP = re.compile(r"(\d{12})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class EntryLists:
    """What there is in a journal's directory."""

    directory: JournalDirectory

    def leaders(self) -> tuple[LeaderName, ...]:
        """Give the names of the leaders that are remembered, the newest last."""
        return tuple(map(LeaderName, self.numbers(LeaderName.kind)))

    def branches(self) -> tuple[BranchName, ...]:
        """Give the names of all branches that have an entry, the newest last."""
        return tuple(map(BranchName, self.numbers(BranchName.kind)))

    def lines(self) -> tuple[int, ...]:
        """Give the numbers of all branches that hold anything, in order."""
        kinds = (self.numbers(kind) for kind in BRANCHED)
        return tuple(sorted({number for numbers in kinds for number in numbers}))

    def steps(self, branch: int = 0) -> frozenset[int]:
        """Give all steps that a branch has an entry of, checkpoints apart."""
        return frozenset(name.step for name in self.listed(branch))

    def commits(self, branch: int = 0) -> tuple[CommitName, ...]:
        """Give the names of all commits that are kept, oldest first."""
        return tuple(CommitName(step, branch) for step in self._steps(CommitName.kind, branch))

    def checkpoints(self, branch: int = 0) -> tuple[CheckpointName, ...]:
        """Give the names of all checkpoints of a branch, oldest first."""
        steps = self._steps(CheckpointName.kind, branch)
        return tuple(CheckpointName(step, branch) for step in steps)

    def published(self, branch: int = 0) -> tuple[PublishedName, ...]:
        """Give the names of the kept statements of what is published, oldest first."""
        steps = self._steps(PublishedName.kind, branch)
        return tuple(PublishedName(step, branch) for step in steps)

    def plans(self, branch: int = 0) -> tuple[PlanName, ...]:
        """Give the names of all plans that are kept, by step and revision."""
        found = self._numbered_steps(PlanName.kind, branch)
        return tuple(PlanName(step, revision, branch) for step, revision in found)

    def repairs(self, branch: int = 0) -> tuple[RepairName, ...]:
        """Give the names of all repairs that are kept, by step and number."""
        found = self._numbered_steps(RepairName.kind, branch)
        return tuple(RepairName(step, number, branch) for step, number in found)

    def floors(self, branch: int = 0) -> list[int]:
        """Give the floors of the segments that are kept, the highest last."""
        return self._steps(SegmentName.kind, branch)

    def floor(self, branch: int = 0) -> int | None:
        """Give the step below which entries were trimmed, ``None`` if that never happened."""
        return max(self.floors(branch), default=None)

    def listed(self, branch: int) -> list[StepName]:
        """Give the names of all entries of a branch's steps, checkpoints apart."""
        return [
            *self.plans(branch),
            *self.commits(branch),
            *self.published(branch),
            *self.repairs(branch),
        ]

    def where(self, name: EntryName) -> str:
        """Where an entry is, for people."""
        return self.directory.where(str(name))

    def numbers(self, kind: str) -> list[int]:
        """The numbers that a kind has entries or branches of, in order."""
        names = self.directory.list(kind)
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def _steps(self, kind: str, branch: int) -> list[int]:
        names = self.directory.list(f"{kind}/{branch}")
        return sorted(int(name) for name in names if _STEP_NAME.fullmatch(name))

    def _numbered_steps(self, kind: str, branch: int) -> list[tuple[int, int]]:
        matches = map(_NUMBERED_STEP.fullmatch, self.directory.list(f"{kind}/{branch}"))
        return sorted((int(found[1]), int(found[2])) for found in matches if found)
