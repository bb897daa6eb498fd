"""Records: what effects on the journal come to, and where the journal says a pipeline stands."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from anabranch.coordinator.driver.checkpoint_copy import checkpoint_entries, checkpoint_files
from anabranch.coordinator.effects import (
    MakeBranch,
    ReadJournal,
    ReadStep,
    WriteCheckpoint,
    WriteCommit,
    WriteIdentity,
    WritePlan,
    WriteRepair,
)
from anabranch.coordinator.events import (
    BranchMade,
    CheckpointWritten,
    CommitWritten,
    EffectFailed,
    IdentityWritten,
    JournalRead,
    LeaderFenced,
    PlanWritten,
    RepairWritten,
    StepRead,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.protocol.node import Output
from anabranch.records.commit import Repair
from anabranch.records.leader import Identity
from anabranch.store import files
from tests.coordinator.records_kit import Office, checkpoint, commit, plan, staged, state


@pytest.fixture
def bare(tmp_path: Path) -> Office:
    return Office(tmp_path)


@pytest.fixture
def office(bare: Office) -> Office:
    bare.identify()
    return bare


def outputs(*steps: int, branch: int = 0) -> tuple[Output, ...]:
    return tuple(Output(step, staged(branch, step), branch) for step in steps)


def test_an_empty_directory_stands_at_nothing(bare: Office) -> None:
    assert bare.view() == JournalView()


def test_the_first_identity_counts(bare: Office) -> None:
    report = bare.perform(WriteIdentity("orders", 2))
    assert report == IdentityWritten(Identity("drawn-0", "orders", 2))
    assert bare.perform(WriteIdentity("others", 4)) == report
    assert bare.view() == JournalView(identity=Identity("drawn-0", "orders", 2))


def test_plans_and_commits_are_adopted_from_whoever_was_first(office: Office) -> None:
    assert office.perform(WritePlan(0, plan(1))) == PlanWritten(plan(1))
    assert office.perform(WritePlan(0, plan(1, code="other"))) == PlanWritten(plan(1))
    revised = plan(1, revision=1, code="other")
    assert office.perform(WritePlan(0, revised)) == PlanWritten(revised)
    assert office.view().plan == revised
    assert office.perform(WriteCommit(0, commit(1))) == CommitWritten(commit(1), ours=True)
    theirs = commit(1, published=1)
    assert office.perform(WriteCommit(0, theirs)) == CommitWritten(commit(1), ours=False)


def test_a_checkpoint_and_a_repair_are_written_once(office: Office) -> None:
    office.step(1)
    kept = checkpoint(1)
    assert office.perform(WriteCheckpoint(kept)) == CheckpointWritten(kept)
    assert office.perform(WriteCheckpoint(checkpoint(1, published=1))) == CheckpointWritten(kept)
    first = Repair(1, 1, 0, state("r"))
    assert office.perform(WriteRepair(0, first)) == RepairWritten(first)
    other = Repair(1, 1, 0, state("s"))
    assert office.perform(WriteRepair(0, other)) == RepairWritten(first)


def test_a_repair_supersedes_the_state_and_nothing_else(office: Office) -> None:
    made = office.step(1)
    office.repair(0, 1, 1, "r1")
    office.repair(0, 1, 2, "r2")
    found = office.view()
    assert (found.commit, found.states, found.repairs) == (made, state("r2"), 2)
    made = office.step(2)
    found = office.view()
    assert (found.commit, found.states, found.repairs) == (made, made.states, 0)


def test_a_step_is_read_with_the_plan_that_was_committed(office: Office) -> None:
    for revision in range(3):
        office.perform(WritePlan(0, plan(1, revision)))
    made = commit(1, revision=1)
    office.perform(WriteCommit(0, made))
    assert office.perform(ReadStep(0, 1)) == StepRead(plan(1, 1), made)
    report = office.perform(ReadStep(0, 2))
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store.missing_entry"


def test_outputs_are_what_some_sink_may_lack(office: Office) -> None:
    for step, published in ((1, 0), (2, 0), (3, 1)):
        office.step(step, published)
    found = office.view()
    assert (found.outputs, found.published) == (outputs(2, 3), {"out": 1})
    office.publish(0, 2)
    found = office.view()
    assert (found.outputs, found.published) == (outputs(3), {"out": 2})
    office.publish(0, 3)
    found = office.view()
    assert (found.outputs, found.published) == ((), {"out": 3})


def test_a_commit_that_is_missing_among_those_to_publish_is_told(office: Office) -> None:
    for step in (1, 2, 3):
        office.step(step)
    office.path("commit/0/000000000002").unlink()
    report = office.perform(ReadJournal())
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store.missing_entry"


def test_replay_can_begin_where_plans_and_commits_are_all_there(office: Office) -> None:
    for step in range(1, 8):
        office.step(step, step - 1)
    assert office.view().replayable == 1
    office.trim(0, 3)
    assert office.view().replayable == 3
    office.path("plan/0/000000000005.0").unlink()
    assert office.view().replayable == 6
    office.path("plan/0/000000000007.0").unlink()
    assert office.view().replayable == 8


# ---------------------------------------------------------------------------------- branches


def test_a_branch_stands_at_the_checkpoint_that_it_left_from(office: Office) -> None:
    for step in range(1, 6):
        office.step(step, step - 1)
        if step in (2, 4):
            office.keep(checkpoint(step, published=step))
    office.perform(WritePlan(0, plan(6)))
    found = office.rewind(checkpoint(2, published=2))
    assert found == office.view()
    assert (found.branch, found.step, found.plan) == (1, 2, None)
    assert found.commit == checkpoint(2, published=2).opened()
    assert [kept.step for kept in found.checkpoints] == [2]
    assert (found.outputs, found.replayable) == ((), 1)

    made = office.step(3, 2, branch=1)
    found = office.view()
    assert (found.branch, found.commit, found.outputs) == (1, made, outputs(3, branch=1))
    assert found.replayable == 1
    assert office.perform(ReadStep(1, 2)) == StepRead(plan(2), commit(2, 1))
    assert office.perform(ReadStep(1, 3)) == StepRead(plan(3), made)
    # The line that was left is as it was.
    assert office.perform(ReadStep(0, 5)) == StepRead(plan(5), commit(5, 4))


def test_a_branch_of_a_branch_sees_what_both_have_kept(office: Office) -> None:
    for step in range(1, 6):
        office.step(step, step - 1)
        office.keep(checkpoint(step, published=step))
    office.rewind(checkpoint(3, published=3))
    for step in range(4, 8):
        office.step(step, step - 1, branch=1)
        office.keep(checkpoint(step, branch=1, published=step))
    office.rewind(checkpoint(5, branch=1, published=5))
    seen = [(kept.branch, kept.step) for kept in office.view().checkpoints]
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    found = office.rewind(checkpoint(2, published=2))
    assert (found.branch, found.step) == (3, 2)
    assert [(kept.branch, kept.step) for kept in found.checkpoints] == [(0, 1), (0, 2)]


def test_output_from_before_a_branch_is_still_published(office: Office) -> None:
    for step in (1, 2, 3):
        office.step(step)
    found = office.rewind(office.keep(checkpoint(2, published=0)))
    assert found.outputs == outputs(1, 2)
    office.step(3, 1, branch=1)
    assert office.view().outputs == (*outputs(2), *outputs(3, branch=1))


def test_no_branch_is_made_without_its_checkpoint(office: Office) -> None:
    office.step(1)
    office.step(2)
    report = office.perform(MakeBranch(checkpoint(1)))
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store.missing_entry"
    assert (office.view().branch, office.view().step) == (0, 2)


def test_a_branch_that_holds_nothing_is_not_made_twice(office: Office) -> None:
    office.step(1)
    kept = office.keep(checkpoint(1))
    first = office.perform(MakeBranch(kept))
    assert isinstance(first, BranchMade)
    assert office.perform(MakeBranch(kept)) == first
    office.step(2, branch=1)
    again = office.perform(MakeBranch(kept))
    assert isinstance(again, BranchMade)
    assert again.journal.branch == 2


def test_trimming_removes_what_was_left_behind(office: Office) -> None:
    for step in range(1, 8):
        office.step(step, step - 1)
        if step in (2, 4, 6):
            office.keep(checkpoint(step, published=step))
    office.rewind(checkpoint(4, published=4))
    for step in (5, 6):
        office.step(step, step - 1, branch=1)
    office.trim(1, 4, 4)
    journal = office.leadership.journal
    assert [name.step for name in journal.commits()] == [4]
    assert [name.step for name in journal.checkpoints()] == [4]
    assert [name.step for name in journal.commits(1)] == [5, 6]
    found = office.view()
    assert [kept.step for kept in found.checkpoints] == [4]
    assert (found.step, found.replayable) == (6, 4)
    made = office.step(7, 6, branch=1)
    segment = journal.segment()
    assert (segment.steps, segment.first_step, segment.last_step) == (7, 1, 7)
    assert segment.rows == {"out": sum(range(1, 8))}
    # Again, with more to fold: nothing is counted twice.
    office.keep(checkpoint(7, branch=1, published=7))
    office.trim(1, 8, 7)
    assert (journal.commits(), [name.step for name in journal.commits(1)]) == ((), [7])
    assert journal.segment() == segment
    assert journal.segment(1).rows == {"out": 5 + 6}
    assert office.view().commit == made


def test_trimming_never_removes_a_repair_of_the_last_step(office: Office) -> None:
    office.step(1)
    kept = office.keep(checkpoint(1, published=1))
    office.repair(0, 1, 1, "r1")
    office.trim(0, 2, 1)
    assert office.view().states == state("r1")
    office.rewind(kept)
    office.repair(1, 1, 1, "r2")
    office.trim(1, 2, 1)
    found = office.view()
    assert (found.branch, found.step, found.states) == (1, 1, state("r2"))


# ------------------------------------------------------------------------- copies and damage


def copied(office: Office, names: tuple[str, ...], to: Path) -> Office:
    for name in names:
        source, target = office.directory / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return Office(to)


@pytest.mark.parametrize("branch", [0, 1])
def test_a_copy_of_the_files_of_a_checkpoint_stands_there(
    office: Office, tmp_path: Path, branch: int
) -> None:
    for step in range(1, 5):
        office.step(step)
    if branch:
        office.rewind(office.keep(checkpoint(1)))
        office.step(2, branch=1)
        office.step(3, branch=1)
    kept = office.keep(checkpoint(3, branch=branch, published=1))
    office.step(5 if not branch else 4, branch=branch)
    whole = office.view()

    entries = (f"journal/{name}" for name in checkpoint_entries(kept))
    names = (*entries, *checkpoint_files(kept))
    text = f"{branch}-3"
    runs = (f"run/totals/{text}-0.blob", f"run/totals/{text}.arrow")
    assert set(names) == {
        "journal/identity",
        f"journal/checkpoint/{branch}/000000000003",
        *runs,
        *(["journal/branch/1"] if branch else []),
    }
    for name in runs:
        (office.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (office.directory / name).write_bytes(b"x")
    copy = copied(office, names, tmp_path / "copy")
    assert copy.view() == JournalView(
        identity=whole.identity,
        branch=branch,
        commit=kept.opened(),
        states=kept.states,
        published={"out": 1},
        checkpoints=(kept,),
        replayable=4,
    )
    made = copy.step(4, 3, branch=branch)
    assert copy.view().commit == made
    assert copy.view().replayable == 4


def test_the_files_of_a_checkpoint_include_those_of_its_parts() -> None:
    kept = checkpoint(3)
    more = msgspec.structs.replace(kept.commit, files=("log/orders-3",))
    logged = msgspec.structs.replace(kept, commit=more)
    assert set(checkpoint_files(logged)) - set(checkpoint_files(kept)) == {"log/orders-3"}


def test_a_damaged_checkpoint_is_told_and_the_others_are_used(office: Office) -> None:
    for step in (1, 2, 3):
        office.step(step)
        office.keep(checkpoint(step))
    path = office.path("checkpoint/0/000000000002")
    path.write_bytes(path.read_bytes()[:-1])
    found = office.view()
    assert [kept.step for kept in found.checkpoints] == [1, 3]
    assert len(found.damaged) == 1
    assert "checkpoint/0/000000000002 is damaged" in found.damaged[0]
    assert str(path) in found.damaged[0]


def test_a_checkpoint_whose_text_makes_no_sense_is_damaged(office: Office) -> None:
    office.step(1)
    office.keep(checkpoint(1))
    entry = office.leadership.journal.checkpoints()[0]
    path = office.path(str(entry))
    path.unlink()
    office.leadership.journal.create(entry, b'{"step":"one"}', "n")
    assert "its content makes no sense" in office.view().damaged[0]


def test_a_branch_whose_checkpoint_is_damaged_stands_at_the_commit(office: Office) -> None:
    for step in (1, 2):
        office.step(step)
    office.rewind(office.keep(checkpoint(1)))
    office.path("checkpoint/0/000000000001").write_bytes(b"torn")
    found = office.view()
    assert (found.branch, found.commit, len(found.damaged)) == (1, commit(1), 1)
    office.path("commit/0/000000000001").unlink()
    report = office.perform(ReadJournal())
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store.corrupt_entry"
    assert report.failure.where == str(office.path("checkpoint/0/000000000001"))


@pytest.mark.parametrize("entry", ["branch/1", "commit/1/000000000002", "identity"])
def test_an_entry_that_cannot_be_done_without_is_told(office: Office, entry: str) -> None:
    office.step(1)
    office.rewind(office.keep(checkpoint(1)))
    office.step(2, branch=1)
    office.path(entry).write_bytes(b"torn")
    report = office.perform(ReadJournal())
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store.corrupt_entry"


# --------------------------------------------------------------------------- failures and fences


def test_a_retry_after_an_error_finds_its_own_entry(
    bare: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = files.sync_directory
    broken = True

    def fail_once(path: Path) -> None:
        nonlocal broken
        if broken and path.name in ("0", "journal"):
            broken = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(path)

    bare.step(1)
    monkeypatch.setattr(files, "sync_directory", fail_once)
    report = bare.perform(WriteCommit(0, commit(2)))
    assert isinstance(report, EffectFailed)
    assert report.effect == WriteCommit(0, commit(2))
    assert bare.perform(WriteCommit(0, commit(2))) == CommitWritten(commit(2), ours=True)

    broken = True
    assert isinstance(bare.perform(WriteIdentity("orders", 2)), EffectFailed)
    report = bare.perform(WriteIdentity("orders", 2))
    assert isinstance(report, IdentityWritten)
    assert bare.view().identity == report.identity


def test_another_body_under_the_name_of_a_failed_one_is_not_taken_for_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = files.sync_directory

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    office.step(1)
    monkeypatch.setattr(files, "sync_directory", fail)
    assert isinstance(office.perform(WriteCommit(0, commit(2))), EffectFailed)
    monkeypatch.setattr(files, "sync_directory", sync)
    other = commit(2, published=1)
    assert office.perform(WriteCommit(0, other)) == CommitWritten(commit(2), ours=False)


def test_whoever_is_taken_over_is_told(office: Office) -> None:
    office.step(1)
    newer = Leadership(FileDirectory(office.directory / "journal"))
    newer.lead(True, "there", 2, 0)
    for effect in (
        WriteIdentity("orders", 2),
        WritePlan(0, plan(2)),
        WriteCommit(0, commit(2)),
        WriteCheckpoint(checkpoint(1)),
        WriteRepair(0, Repair(1, 1, 0, state("r"))),
        MakeBranch(checkpoint(1)),
    ):
        report = office.perform(effect)
        assert isinstance(report, LeaderFenced), effect
        assert report.failure.code == "coordinator.fenced"
        assert "Process 2 on there" in report.failure.what
    assert isinstance(office.perform(ReadJournal()), JournalRead)
    assert office.view().step == 1


def test_a_commit_of_a_step_that_is_folded_up_is_fenced(office: Office) -> None:
    for step in (1, 2, 3):
        office.step(step, step - 1)
    office.trim(0, 3)
    assert isinstance(office.perform(WriteCommit(0, commit(2))), LeaderFenced)
    report = office.perform(WriteCheckpoint(checkpoint(2)))
    assert isinstance(report, EffectFailed)
    assert report.failure.code == "store"
    office.publish(0, 2)
    assert [name.step for name in office.leadership.journal.commits()] == [3]
