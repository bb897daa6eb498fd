"""The mutations of ``scripts/mutants.py``: about lines that are there, each with a finder."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutants import BY_SIMULATION, Finder, read_finders
from scripts.mutations import MUTATIONS, Mutation, apply
from tests.simulation.schedules import SCENARIOS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_mutation_changes_one_place_and_leaves_python(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    changed = apply(mutation, text)
    assert changed != text
    compile(changed, mutation.file, "exec")
    assert mutation.breaks
    for test in mutation.tests:
        assert (ROOT / test).exists()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_what_finds_a_mutation_is_on_record(mutation: Mutation) -> None:
    finder = read_finders()[mutation.name]
    assert (finder.schedule is None) != (finder.test is None)
    if finder.schedule is not None:
        assert mutation.simulated
        assert finder.schedule[0] in SCENARIOS
    if finder.test is not None:
        file, _, name = finder.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) >= 30
    finders = read_finders()
    assert set(finders) == {each.name for each in MUTATIONS}
    assert sum(each.schedule is not None for each in finders.values()) >= BY_SIMULATION


def test_a_record_is_read_as_it_was_written() -> None:
    for finder in (Finder(schedule=("shop", 7)), Finder(test="tests/x.py::test_y")):
        assert Finder.of(finder.kept()) == finder
    with pytest.raises(ValueError, match="not a finder"):
        Finder.of({"seed": 7})


def test_a_line_that_is_gone_is_told() -> None:
    gone = Mutation("gone", "errors.py", "nothing of the kind", "pass", "nothing")
    with pytest.raises(ValueError, match=r"src/anabranch/errors\.py has its line 0 times"):
        apply(gone, (ROOT / gone.file).read_text())
