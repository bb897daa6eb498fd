"""Steps, commits and checkpoints as small as they can be, and a leader's records."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from anabranch.coordinator.driver.journal_writer import JournalWriter
from anabranch.coordinator.effects import (
    JournalEffect,
    MakeBranch,
    ReadJournal,
    Trim,
    WriteCheckpoint,
    WriteCommit,
    WriteIdentity,
    WritePlan,
    WritePublished,
    WriteRepair,
)
from anabranch.coordinator.events import BranchMade, JournalRead, JournalTrimmed
from anabranch.coordinator.journal_view import JournalView
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.records.bins import BinSet
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.placed import OperatorShape, OperatorState
from anabranch.records.plan import Input, Plan
from anabranch.records.run_list import BlobInfo, Listed, RunInfo
from anabranch.records.staged_file import StagedFile
from tests.coordinator.parts_kit import parts_with

SHAPE = OperatorShape("totals", "Aggregate", "by-key", "k string", "n bigint")


def state(text: str) -> tuple[OperatorState, ...]:
    """A state whose one run, with a blob in use and one in no use, is named after a text."""
    blobs = tuple(
        BlobInfo(f"run/totals/{text}-{bin}.blob", 1, "00000000", bin=bin) for bin in (0, 1)
    )
    run = RunInfo(f"run/totals/{text}.arrow", "totals", 1, 1, "00000000", blobs=blobs)
    return (OperatorState(SHAPE, (Listed(run, BinSet.of([0])),), (1, 0)),)


def read(step: int) -> tuple[Input, ...]:
    return (Input("orders", (), msgspec.Raw(b"%d" % step)),)


def plan(step: int, revision: int = 0, code: str = "code") -> Plan:
    return Plan(step, revision, step * 1000, code, read(step), (), 1)


def staged(branch: int, step: int) -> tuple[StagedFile, ...]:
    name = f"stage/out/{branch}-{step}"
    return (StagedFile(name=name, sink="out", rows=step, bytes=1, checksum="00000000"),)


def commit(step: int, published: int = 0, *, branch: int = 0, revision: int = 0) -> Commit:
    text = f"{branch}-{step}"
    return Commit(
        step,
        revision,
        step * 1000,
        "code",
        (),
        state(text),
        staged(branch, step),
        (),
        {"out": published},
        parts=parts_with(read(step)),
    )


def checkpoint(step: int, *, branch: int = 0, published: int = 0) -> Checkpoint:
    made = commit(step, branch=branch)
    return Checkpoint(branch, made, {"out": published})


@dataclass
class Office:
    """Records in a directory, under one leader after the other."""

    directory: Path
    leadership: Leadership = field(init=False)
    records: JournalWriter = field(init=False)
    drawn: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.leadership = Leadership(FileDirectory(self.directory / "journal"))
        self.begin()

    def begin(self) -> None:
        self.leadership.lead(False, "here", 1, 0)
        self.records = JournalWriter(self.leadership.journal, lambda: f"drawn-{next(self.drawn)}")

    def restart(self) -> None:
        self.leadership.abandon()
        self.leadership = Leadership(FileDirectory(self.directory / "journal"))
        self.begin()

    def perform(self, effect: JournalEffect) -> object:
        return self.records.perform(effect)

    def view(self) -> JournalView:
        event = self.perform(ReadJournal())
        assert isinstance(event, JournalRead), event
        return event.journal

    def identify(self) -> None:
        self.perform(WriteIdentity("orders", 2))

    def step(self, number: int, published: int = 0, *, branch: int = 0) -> Commit:
        made = commit(number, published, branch=branch)
        self.perform(WritePlan(branch, plan(number)))
        self.perform(WriteCommit(branch, made))
        return made

    def keep(self, kept: Checkpoint) -> Checkpoint:
        self.perform(WriteCheckpoint(kept))
        return kept

    def repair(self, branch: int, step: int, number: int, text: str) -> None:
        self.perform(WriteRepair(branch, Repair(step, number, 0, state(text))))

    def publish(self, branch: int, step: int) -> None:
        assert self.perform(WritePublished(branch, step)) is None

    def rewind(self, to: Checkpoint) -> JournalView:
        event = self.perform(MakeBranch(to))
        assert isinstance(event, BranchMade), event
        return event.journal

    def trim(self, branch: int, below: int, *checkpoints: int) -> None:
        assert self.perform(Trim(branch, below, checkpoints)) == JournalTrimmed(tuple(checkpoints))

    def path(self, entry: str) -> Path:
        return self.directory / "journal" / entry
