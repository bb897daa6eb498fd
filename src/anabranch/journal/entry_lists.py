"""The names in a journal's directory, by kind and in order.

Whatever is not the name of an entry is passed over. Nothing is opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

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
_STEP = re.compile(r"(\d{12})")
_REVISION = re.compile(r"(\d{12})\.(\d{1,9})")

Once = TypeVar("Once", CommitName, PublishedName, CheckpointName, SegmentName)
Revised = TypeVar("Revised", PlanName, RepairName)


@dataclass(frozen=True, slots=True)
class EntryLists:
    """What there is in a journal's directory. All lists are in order, the newest last."""

    directory: JournalDirectory

    def leaders(self) -> tuple[LeaderName, ...]:
        """The leaders that are remembered."""
        return tuple(map(LeaderName, self._numbers(LeaderName.kind)))

    def newest_leader(self) -> int:
        """The number of the last leader, 0 if there was none."""
        return max((name.number for name in self.leaders()), default=0)

    def branches(self) -> tuple[BranchName, ...]:
        """All branches that have an entry."""
        return tuple(map(BranchName, self._numbers(BranchName.kind)))

    def lines(self) -> tuple[int, ...]:
        """The numbers of all branches that hold anything."""
        return tuple(sorted({number for kind in BRANCHED for number in self._numbers(kind)}))

    def steps(self, branch: int = 0) -> frozenset[int]:
        """All steps that a branch has an entry of, checkpoints apart."""
        return frozenset(name.step for name in self.listed(branch))

    def commits(self, branch: int = 0) -> tuple[CommitName, ...]:
        """All commits that are kept."""
        return self._of_steps(CommitName, branch)

    def checkpoints(self, branch: int = 0) -> tuple[CheckpointName, ...]:
        """All checkpoints of a branch."""
        return self._of_steps(CheckpointName, branch)

    def published(self, branch: int = 0) -> tuple[PublishedName, ...]:
        """The kept statements of what is published."""
        return self._of_steps(PublishedName, branch)

    def segments(self, branch: int = 0) -> tuple[SegmentName, ...]:
        """The segments that are kept."""
        return self._of_steps(SegmentName, branch)

    def plans(self, branch: int = 0) -> tuple[PlanName, ...]:
        """All plans that are kept, by step and revision."""
        return self._of_revisions(PlanName, branch)

    def repairs(self, branch: int = 0) -> tuple[RepairName, ...]:
        """All repairs that are kept, by step and number."""
        return self._of_revisions(RepairName, branch)

    def floor(self, branch: int = 0) -> int | None:
        """The step below which entries were trimmed, ``None`` if that never happened."""
        return max((name.step for name in self.segments(branch)), default=None)

    def listed(self, branch: int) -> list[StepName]:
        """All entries of a branch's steps, checkpoints apart."""
        return [
            *self.plans(branch),
            *self.commits(branch),
            *self.published(branch),
            *self.repairs(branch),
        ]

    def where(self, name: EntryName) -> str:
        """Where an entry is, for people."""
        return self.directory.where(str(name))

    def _numbers(self, kind: str) -> list[int]:
        names = self.directory.list(kind)
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def _of_steps(self, kind: type[Once], branch: int) -> tuple[Once, ...]:
        return tuple(kind(step, branch) for (step,) in self._matches(_STEP, kind.kind, branch))

    def _of_revisions(self, kind: type[Revised], branch: int) -> tuple[Revised, ...]:
        found = self._matches(_REVISION, kind.kind, branch)
        return tuple(kind(step, revision, branch) for step, revision in found)

    def _matches(self, pattern: re.Pattern[str], kind: str, branch: int) -> list[list[int]]:
        matches = map(pattern.fullmatch, self.directory.list(f"{kind}/{branch}"))
        return sorted([int(number) for number in found.groups()] for found in matches if found)
