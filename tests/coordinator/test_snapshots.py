"""State that is read from the journal, beside whoever runs the pipeline, after a rewind too."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import UnknownStep
from anabranch.task.state_reader import read_snapshot, steps_of
from tests.coordinator.records_kit import Office, checkpoint, commit, state


@pytest.fixture
def office(tmp_path: Path) -> Office:
    made = Office(tmp_path)
    made.identify()
    return made


def test_after_a_rewind_the_branch_is_read(office: Office) -> None:
    for step in range(1, 5):
        office.step(step, step - 1)
    office.rewind(office.keep(checkpoint(2, published=2)))
    assert steps_of(office.directory) == [1, 2]
    assert read_snapshot(office.directory).states == checkpoint(2).states
    with pytest.raises(UnknownStep):
        read_snapshot(office.directory, 4)
    office.step(3, branch=1)
    assert steps_of(office.directory) == [1, 2, 3]
    assert read_snapshot(office.directory).states == commit(3, branch=1).states
    assert read_snapshot(office.directory, 1).states == commit(1).states


def test_a_checkpoint_is_read_when_its_commit_is_gone(office: Office) -> None:
    for step in range(1, 5):
        office.step(step, step - 1)
        if step == 2:
            office.keep(checkpoint(2, published=2))
    office.trim(0, 4, 2)
    assert steps_of(office.directory) == [2, 4]
    assert read_snapshot(office.directory, 2).states == checkpoint(2).states


def test_a_repair_is_read_in_place_of_the_commit_s_state(office: Office) -> None:
    office.step(1)
    office.repair(0, 1, 1, "r1")
    office.repair(0, 1, 2, "r2")
    assert read_snapshot(office.directory).states == state("r2")
    office.rewind(office.keep(checkpoint(1)))
    office.repair(1, 1, 1, "r3")
    assert read_snapshot(office.directory).states == state("r3")
