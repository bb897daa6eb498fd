"""Performs the machine's effects on the journal: each effect becomes the event it names.

The first writer of a name wins, and its entry is adopted. A store error becomes ``EffectFailed``.
The machine may retry: an entry that the failed attempt did create is recognized as our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, assert_never

import msgspec

from anabranch.coordinator import effects, events
from anabranch.coordinator.driver.journal_reader import read_journal_view, read_step
from anabranch.coordinator.effects import JournalEffect
from anabranch.coordinator.events import Event
from anabranch.errors import AnabranchError, Fenced, StoreError
from anabranch.journal.entry_names import (
    BranchName,
    CheckpointName,
    CommitName,
    EntryName,
    IdentityName,
    PlanName,
    PublishedName,
    RepairName,
)
from anabranch.journal.journal import Journal, Outcome, Taken, Trimmed
from anabranch.journal.lineage import decoded, lineage, newest_branch, origin_of, stands_at
from anabranch.protocol.failures import failure_of
from anabranch.records.commit import Checkpoint, decode_checkpoint, decode_commit, decode_repair
from anabranch.records.leader import Branch, Identity, decode_branch, decode_identity
from anabranch.records.plan import decode_plan

T = TypeVar("T")


class JournalWriter:
    """The journal as the coordinator's driver uses it. Not shared between threads."""

    def __init__(self, journal: Journal, draw: Callable[[], str]) -> None:
        """``journal`` is the leader's; ``draw`` returns globally unique strings."""
        self._journal = journal
        self._draw = draw
        # Failed attempts that may have created their entry, with their nonces.
        self._unsure: dict[tuple[EntryName, bytes], str] = {}
        self._identity: Identity | None = None

    def perform(self, effect: JournalEffect) -> Event | None:
        """Perform an effect; returns its outcome, None if there is only success to report."""
        try:
            return self._perform(effect)
        except Fenced as error:
            return events.LeaderFenced(failure_of(error))
        except AnabranchError as error:
            return events.EffectFailed(effect, failure_of(error))

    def _perform(self, effect: JournalEffect) -> Event | None:
        event: Event | None = None
        match effect:
            case effects.ReadJournal():
                event = events.JournalRead(read_journal_view(self._journal))
            case effects.ReadStep(branch, step):
                event = events.StepRead(*read_step(self._journal, branch, step))
            case effects.WriteIdentity():
                event = self._write_identity(effect)
            case effects.WritePlan(branch, plan):
                plan_name = PlanName(plan.step, plan.revision, branch)
                event = events.PlanWritten(self._write(plan_name, plan, decode_plan)[0])
            case effects.WriteCommit(branch, commit):
                commit_name = CommitName(commit.step, branch)
                event = events.CommitWritten(*self._write(commit_name, commit, decode_commit))
            case effects.WriteCheckpoint(checkpoint):
                kept = CheckpointName(checkpoint.step, checkpoint.branch)
                event = events.CheckpointWritten(
                    self._write(kept, checkpoint, decode_checkpoint)[0]
                )
            case effects.WriteRepair(branch, repair):
                repair_name = RepairName(repair.step, repair.number, branch)
                event = events.RepairWritten(self._write(repair_name, repair, decode_repair)[0])
            case effects.WritePublished(branch, step):
                self._create(PublishedName(step, branch), b"")
            case effects.MakeBranch(checkpoint):
                event = self._make_branch(checkpoint)
            case effects.Trim():
                self._trim(effect)
                event = events.JournalTrimmed(effect.checkpoints)
            case _:
                assert_never(effect)
        return event

    def _write_identity(self, effect: effects.WriteIdentity) -> events.IdentityWritten:
        drawn = self._identity
        if drawn is None or (drawn.dataflow, drawn.bins) != (effect.dataflow, effect.bins):
            drawn = self._identity = Identity(self._draw(), effect.dataflow, effect.bins)
        return events.IdentityWritten(self._write(IdentityName(), drawn, decode_identity)[0])

    def _make_branch(self, checkpoint: Checkpoint) -> events.BranchMade:
        wanted = (checkpoint.branch, checkpoint.step)
        while not self._begins_at(wanted):
            self._check_kept(CheckpointName(checkpoint.step, checkpoint.branch))
            branch = Branch(newest_branch(self._journal) + 1, *wanted)
            self._write(BranchName(branch.number), branch, decode_branch)
        return events.BranchMade(read_journal_view(self._journal))

    def _check_kept(self, name: CheckpointName) -> None:
        """Raise ``MissingEntry`` unless the checkpoint of a new branch exists.

        A branch without it could neither be read nor left again.
        """
        if self._journal.find(name) is not None:
            return
        if self._journal.fence is not None:
            self._journal.fence.check()  # a new leader may have dropped it
        self._journal.read(name)

    def _begins_at(self, wanted: tuple[int, int]) -> bool:
        """Whether the newest branch starts there and is empty.

        Then it is just made, or an earlier call made it and failed afterwards.
        """
        newest = newest_branch(self._journal)
        origin = origin_of(self._journal, newest)
        if origin is None or newest in self._journal.lines():
            return False
        return (origin.parent, origin.parent_step) == wanted

    def _trim(self, effect: effects.Trim) -> None:
        """Trim the branch, and what it cannot see or does not need of older ones.

        The last committed step stays. Steps that a rewind left behind go: they are unreachable.
        """
        seen = {each.branch: each for each in lineage(self._journal, effect.branch)}
        first = min(effect.below, stands_at(self._journal, effect.branch))
        for branch in self._journal.lines():
            if branch > effect.branch:
                continue
            stretch = seen.get(branch)
            kept = {s for s in effect.checkpoints if stretch is not None and stretch.sees(s)}
            below, keep = first, set[int]()
            if branch != effect.branch:
                steps = self._journal.steps(branch)
                below = max(steps, default=-1) + 1
                if stretch is not None:
                    keep = {s for s in steps if s >= first and stretch.sees(s)}
            self._journal.trim(below, keep=keep, branch=branch, checkpoints=kept)

    def _write(self, name: EntryName, body: T, decode: Callable[[bytes], T]) -> tuple[T, bool]:
        """Create an entry; returns what the journal now holds, and whether it is ours."""
        outcome = self._create(name, msgspec.json.encode(body))
        if isinstance(outcome, Taken):
            return decoded(self._journal, outcome.entry, decode), False
        if isinstance(outcome, Trimmed):
            raise self._overtaken_error(name, outcome.floor)
        return body, True

    def _create(self, name: EntryName, body: bytes) -> Outcome:
        key = (name, body)
        nonce = self._unsure.setdefault(key, self._draw())
        outcome = self._journal.create(name, body, nonce)
        del self._unsure[key]
        return outcome

    def _overtaken_error(self, name: EntryName, floor: int) -> AnabranchError:
        where = self._journal.directory.where()
        if isinstance(name, PlanName | CommitName):  # the leader is always ahead of the floor
            return Fenced(
                f"The journal has moved on to step {floor} without this process, past {name}",
                where=where,
                do="End this process; the other continues with everything that was committed.",
            )
        return StoreError(
            f"{name} is too late: all steps below {floor} are folded",
            where=where,
            do="Nothing was changed. Keep a newer step.",
        )
