"""Reads the position and state of a pipeline from its journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from anabranch.coordinator.journal_view import JournalView
from anabranch.errors import CorruptEntry, MissingEntry
from anabranch.journal.entry_names import (
    BranchName,
    CheckpointName,
    CommitName,
    EntryName,
    PlanName,
)
from anabranch.journal.journal import Journal
from anabranch.journal.lineage import Stretch, decoded, lineage, newest_branch, origin_of, owner_of
from anabranch.protocol.node import Output
from anabranch.records.commit import (
    Checkpoint,
    Commit,
    decode_checkpoint,
    decode_commit,
    decode_repair,
)
from anabranch.records.leader import Identity, decode_identity
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan, decode_plan

T = TypeVar("T")


def read_journal_view(journal: Journal) -> JournalView:
    """Read the journal. Changes nothing; the entries it relies on are durable afterwards.

    Raises ``CorruptEntry`` or ``MissingEntry`` if a required entry is damaged or gone. A damaged
    checkpoint is only listed, unless the pipeline stands there.
    """
    branch = newest_branch(journal)
    if branch:
        journal.settle(journal.read(BranchName(branch)).name)
    return _Reader(journal, branch, lineage(journal, branch)).view()


def read_checkpoints(journal: Journal) -> tuple[Checkpoint, ...]:
    """The readable checkpoints, oldest first. Changes nothing."""
    branch = newest_branch(journal)
    return _Reader(journal, branch, lineage(journal, branch)).checkpoints()[0]


@dataclass(frozen=True, slots=True)
class _Found:
    """The commit that the pipeline stands at, and whether it is made up from a checkpoint.

    ``rewound``: the branch has no commit of its own; this is the one it starts from.
    """

    commit: Commit | None
    made_up: bool
    rewound: bool = False


@dataclass(frozen=True, slots=True)
class _Reader:
    journal: Journal
    branch: int
    stretches: tuple[Stretch, ...]

    def view(self) -> JournalView:
        identity = self._identity()
        checkpoints, damaged = self.checkpoints()
        found = self._commit(checkpoints)
        commit = found.commit
        step = 0 if commit is None else commit.step
        published = self._published(commit)
        states, repairs = self._states(commit)
        return JournalView(
            identity=identity,
            branch=self.branch,
            commit=commit,
            states=states,
            plan=self._plan(step + 1),
            outputs=self._outputs(found, published),
            published=published,
            checkpoints=checkpoints,
            replayable=self._replayable(step),
            repairs=repairs,
            rewound=found.rewound,
            damaged=damaged,
        )

    def _identity(self) -> Identity | None:
        entry = self.journal.identity()
        return None if entry is None else decoded(self.journal, entry, decode_identity)

    def checkpoints(self) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """The visible checkpoints, oldest first, and the errors of the damaged ones."""
        whole: list[Checkpoint] = []
        damaged: list[str] = []
        for stretch in reversed(self.stretches):
            for name in self.journal.checkpoints(stretch.branch):
                if not stretch.sees(name.step):
                    continue
                try:
                    whole.append(self._read(name, decode_checkpoint))
                except CorruptEntry as error:
                    damaged.append(str(error))
        return tuple(whole), tuple(damaged)

    def _read(self, name: EntryName, decode: Callable[[bytes], T]) -> T:
        return decoded(self.journal, self.journal.read(name), decode)

    def _commit(self, checkpoints: tuple[Checkpoint, ...]) -> _Found:
        """The newest commit of the branch, or the one it starts from."""
        latest = self.journal.latest_commit(self.branch)
        own = [kept for kept in checkpoints if kept.branch == self.branch]
        if own and (latest is None or own[-1].step > latest.step):
            return self._made_up(own[-1])
        if latest is not None:
            return _Found(self._read(latest, decode_commit), made_up=False)
        found = self._beginning(checkpoints)
        return replace(found, rewound=found.made_up)

    def _beginning(self, checkpoints: tuple[Checkpoint, ...]) -> _Found:
        origin = origin_of(self.journal, self.branch)
        if origin is None:
            return _Found(None, made_up=False)
        for kept in checkpoints:
            if (kept.branch, kept.step) == (origin.parent, origin.parent_step):
                return self._made_up(kept)
        try:
            owner = owner_of(self.stretches, origin.parent_step)
            commit = self._read(CommitName(origin.parent_step, owner), decode_commit)
            return _Found(commit, made_up=True)
        except MissingEntry:
            # The branch needs the checkpoint: its error says more.
            name = CheckpointName(origin.parent_step, origin.parent)
            return self._made_up(self._read(name, decode_checkpoint))

    def _made_up(self, checkpoint: Checkpoint) -> _Found:
        self.journal.settle(CheckpointName(checkpoint.step, checkpoint.branch))
        return _Found(checkpoint.opened(), made_up=True)

    def _states(self, commit: Commit | None) -> tuple[tuple[OperatorState, ...], int]:
        """The state at the commit, and the number of the repair it comes from, or 0."""
        if commit is None:
            return (), 0
        repairs = [r for r in self.journal.repairs(self.branch) if r.step == commit.step]
        if not repairs:
            return commit.states, 0
        newest = repairs[-1]
        self.journal.settle(newest)
        return self._read(newest, decode_repair).states, newest.revision

    def _plan(self, step: int) -> Plan | None:
        name = self.journal.latest_plan(step, self.branch)
        return None if name is None else self._read(name, decode_plan)

    def _published(self, commit: Commit | None) -> dict[str, int]:
        """The last step that each sink is known to have, by the commit or by later entries.

        Folded steps are published: others are not folded.
        """
        if commit is None:
            return {}
        said = [
            name.step
            for stretch in self.stretches
            for name in self.journal.published(stretch.branch)
            if stretch.sees(name.step) and name.step <= commit.step
        ]
        least = min(commit.published.values(), default=commit.step)
        known = max([least, *said])
        folded = [step for step in range(known + 1, commit.step + 1) if self._is_folded(step)]
        known = max([known, *folded])
        return {sink: max(step, known) for sink, step in commit.published.items()}

    def _is_folded(self, step: int) -> bool:
        branch = owner_of(self.stretches, step)
        floor = self.journal.floor(branch)
        below = floor is not None and step < floor
        return below and CommitName(step, branch) not in self.journal.commits(branch)

    def _outputs(self, found: _Found, published: dict[str, int]) -> tuple[Output, ...]:
        commit = found.commit
        if commit is None:
            return ()
        done = min(published.values(), default=commit.step)
        outputs = []
        for step in range(done + 1, commit.step + 1):
            if commit.step == step and not found.made_up:
                outputs.append(Output(step, commit.staged, owner_of(self.stretches, step)))
                continue
            name = CommitName(step, owner_of(self.stretches, step))
            # A copied checkpoint comes without the commits before it, and without their files.
            entry = self.journal.find(name) if found.made_up else self.journal.read(name)
            if entry is not None:
                staged = decoded(self.journal, entry, decode_commit).staged
                outputs.append(Output(step, staged, name.branch))
        return tuple(outputs)

    def _replayable(self, step: int) -> int:
        """The first step from which plans and commits up to ``step`` exist, or ``step + 1``."""
        kept: set[tuple[int, int]] = set()
        for branch in {stretch.branch for stretch in self.stretches}:
            planned = {name.step for name in self.journal.plans(branch)}
            steps = planned & {name.step for name in self.journal.commits(branch)}
            kept |= {(branch, each) for each in steps}
        while (owner_of(self.stretches, step), step) in kept:
            step -= 1
        return step + 1


def read_step(journal: Journal, branch: int, step: int) -> tuple[Plan, Commit]:
    """Read the plan and the commit of a step that a branch sees."""
    owner = owner_of(lineage(journal, branch), step)
    commit = decoded(journal, journal.read(CommitName(step, owner)), decode_commit)
    name = PlanName(step, commit.revision, owner)
    return decoded(journal, journal.read(name), decode_plan), commit
