"""A removed entry of which there is only one: that is harmless, or a start says what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anabranch.coordinator.driver.checkpoint_copy import copy_checkpoint
from anabranch.coordinator.effects import ReadJournal, WritePlan
from anabranch.coordinator.events import EffectFailed
from anabranch.errors import DirectoryInUse, Fenced, MissingEntry
from anabranch.journal.entry_names import CommitName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Won
from anabranch.journal.leadership import Leadership
from anabranch.protocol.node import Failure
from anabranch.sinks.memory import MemorySink
from anabranch.task.state_reader import read_snapshot
from tests.coordinator.records_kit import Office, checkpoint, plan
from tests.node.engine import Engine
from tests.node.shop import make_program


@pytest.fixture
def office(tmp_path: Path) -> Office:
    office = Office(tmp_path)
    office.identify()
    return office


def contents(directory: Path) -> dict[str, bytes]:
    """All files, but for who has led there."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "leader" not in path.parts
    }


def refusal(office: Office) -> Failure:
    event = office.perform(ReadJournal())
    assert isinstance(event, EffectFailed), event
    return event.failure


@pytest.mark.parametrize("kind", ["plan", "commit", "checkpoint", "branch", "segment"])
def test_an_identity_that_is_missing_beside_any_other_entry_is_refused(
    office: Office, kind: str
) -> None:
    office.step(1)
    office.step(2, published=1)
    office.rewind(office.keep(checkpoint(1)))
    office.trim(1, 1, 1)
    journal = office.directory / "journal"
    (journal / "identity").unlink()
    for path in journal.iterdir():
        if path.name not in (kind, "leader"):
            shutil.rmtree(path)
    before = contents(office.directory)
    assert before, "one entry of the kind"

    office.restart()
    failure = refusal(office)
    assert (failure.code, failure.where) == ("store.missing_entry", str(journal / "identity"))
    assert contents(office.directory) == before
    with pytest.raises(MissingEntry, match="identity"):
        read_snapshot(office.directory)
    with pytest.raises(MissingEntry, match="identity"):
        copy_checkpoint(office.directory, "orders", None, office.directory / "copy")


def test_a_directory_in_which_somebody_led_and_no_more_is_a_new_one(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.restart()
    assert office.view().identity is None
    office.identify()
    identity = office.view().identity
    assert identity is not None
    assert identity.dataflow == "orders"


def test_a_pipeline_without_its_identity_ends_and_nothing_is_changed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    Engine(make_program(tmp_path, MemorySink()), state).run()
    (state / "journal" / "identity").unlink()
    before = contents(tmp_path)
    with pytest.raises(MissingEntry, match="identity"):
        Engine(make_program(tmp_path, MemorySink()), state).run()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_branch_that_has_lost_its_beginning_is_refused(office: Office, steps: int) -> None:
    for step in (1, 2, 3):
        office.step(step)
    office.rewind(office.keep(checkpoint(1)))
    office.perform(WritePlan(1, plan(2)))
    for step in range(2, 2 + steps):
        office.step(step, branch=1)
    office.path("branch/1").unlink()
    before = contents(office.directory)
    office.restart()
    failure = refusal(office)
    assert (failure.code, failure.where) == ("store.missing_entry", str(office.path("branch/1")))
    assert contents(office.directory) == before


def test_a_copy_of_a_branch_does_not_need_the_entries_of_its_parents(
    office: Office, tmp_path: Path
) -> None:
    office.step(1)
    office.rewind(office.keep(checkpoint(1)))
    office.step(2, branch=1)
    office.rewind(office.keep(checkpoint(2, branch=1)))
    office.step(3, branch=2)
    kept = office.keep(checkpoint(3, branch=2))
    copy = tmp_path / "copy" / "journal"
    for name in ("identity", "branch/2", "checkpoint/2/000000000003"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(office.path(name).read_bytes())
    assert Office(copy.parent).view().commit == kept.opened()


def leader(office: Office) -> Leadership:
    return Leadership(FileDirectory(office.directory / "journal"))


def forget_leaders(office: Office) -> None:
    for path in office.path("leader").glob("[0-9]*"):
        if path.suffix != ".lock":
            path.unlink()


def test_a_leader_that_lives_is_in_the_way_also_without_its_entry(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.leadership.PATIENCE_SECONDS", 0.05)
    for _ in range(3):
        office.restart()
    forget_leaders(office)
    with pytest.raises(DirectoryInUse):
        leader(office).lead(False, "there", 2, 0)
    assert office.leadership.journal.create(CommitName(9), b"{}", "mine") == Won()


def test_a_leader_without_its_entry_is_fenced_by_a_take_over(office: Office) -> None:
    for _ in range(3):
        office.restart()
    old = office.leadership.number
    forget_leaders(office)
    new = leader(office)
    assert new.lead(True, "there", 2, 0) > (old or 0)
    with pytest.raises(Fenced):
        office.leadership.journal.create(CommitName(9), b"{}", "mine")
    new.release()


def test_numbers_of_leaders_go_on_where_a_dead_one_has_left_its_lease(office: Office) -> None:
    for _ in range(3):
        office.restart()
    last = office.leadership.number or 0
    office.leadership.abandon()
    forget_leaders(office)
    new = leader(office)
    assert new.lead(False, "there", 2, 0) >= last
    new.release()
