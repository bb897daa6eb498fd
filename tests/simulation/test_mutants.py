"""The mutations of ``scripts/mutants.py``: each is about a line that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutants import BY_SIMULATION
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
    assert mutation.schedule[0] in SCENARIOS
    for test in mutation.tests:
        assert (ROOT / test).exists()


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) >= 30
    assert sum(each.simulated for each in MUTATIONS) >= BY_SIMULATION


def test_a_line_that_is_gone_is_told() -> None:
    gone = Mutation("gone", "errors.py", "nothing of the kind", "pass", "nothing")
    with pytest.raises(ValueError, match=r"src/anabranch/errors\.py has its line 0 times"):
        apply(gone, (ROOT / gone.file).read_text())
