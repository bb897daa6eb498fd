"""The simulated cluster itself: reproducible, able to find bugs, able to keep what it found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator.driver.journal_reader import read_journal_view
from anabranch.errors import MissingRun
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.runs.run_file import forget_runs
from anabranch.task.state_reader import snapshot_of
from anabranch.testing import __main__ as command
from anabranch.testing.cluster.rule_broken import RuleBroken
from anabranch.testing.join import join
from anabranch.testing.plane.tables import Tables
from anabranch.testing.scenarios import Simulated, scenario_of
from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation
from tests.simulation.bugs import BUGS, FOUND_BY, bug, is_found

NEAR = 100

KEPT = json.loads(Path(__file__).with_name("seeds.json").read_text())


@pytest.mark.parametrize("scenario", Simulated)
def test_the_same_seed_gives_the_same_run(scenario: Simulated) -> None:
    stories: list[list[str]] = []
    for memo in (True, True, False):
        with Simulation(scenario_of(scenario), memo=memo) as simulation:
            if memo and stories:
                simulation.run(3)  # what was computed before makes no difference
            root = str(simulation.root)
            stories.append([line.replace(root, "") for line in simulation.run(7).story()])
    assert stories[0] == stories[1] == stories[2]
    assert len(stories[0]) > 200


def test_what_a_schedule_comes_to_does_not_depend_on_what_ran_before() -> None:
    name = "query_on_a_removed_file"
    first = KEPT["bugs"][name]
    with bug(name), Simulation() as warm:
        seeds = range(first, first + 2)
        told = [_told(warm, seed) for seed in seeds]
        assert [_told(warm, seed) for seed in seeds] == told
        with Simulation(memo=False) as cold:
            assert [_told(cold, seed) for seed in seeds] == told
    assert any("a query of step" in each for each in told)


def test_a_query_looks_for_its_files_whether_or_not_they_are_open_or_known() -> None:
    with Simulation() as simulation:
        cluster = simulation.run(0)
        view = read_journal_view(Journal(FileDirectory(cluster.store / "journal")))
        assert view.commit is not None
        snapshot = snapshot_of(
            view.step, view.clock_ns, simulation.program.bins, view.states, view.commit.placement
        )
        state = next(each for each in view.states if each.runs)
        known = Tables(cluster.store, {})
        assert known.read(snapshot, state).num_rows  # its runs are open from now on
        (cluster.store / state.runs[0].run.name).unlink()
        for tables in (known, Tables(cluster.store, {}), Tables(cluster.store, None)):
            with pytest.raises(MissingRun):
                tables.read(snapshot, state)
        forget_runs()


def _told(simulation: Simulation, seed: int) -> str:
    """All that a schedule has to say, wherever its directory is."""
    try:
        text = "\n".join(simulation.run(seed).story())
    except RuleBroken as error:
        text = str(error)
    return text.replace(str(simulation.root), "")


@pytest.mark.parametrize("customers", Customers)
def test_other_input_computed_every_time(customers: Customers) -> None:
    with Simulation(shop(script=1, customers=customers), memo=False) as simulation:
        simulation.run(1)


def test_another_join_computed_every_time() -> None:
    with Simulation(join(script=1), memo=False) as simulation:
        simulation.run(1)


@pytest.mark.parametrize(("name", "kept"), sorted(KEPT["schedules"].items()))
def test_a_schedule_that_was_kept(name: str, kept: dict[str, Any]) -> None:
    scenario = {key: value for key, value in kept.items() if key != "seed"}
    with Simulation(scenario_of(**scenario)) as simulation:
        simulation.run(kept["seed"])


def test_every_bug_has_its_seed_and_its_sign() -> None:
    assert set(KEPT["bugs"]) == set(BUGS) == set(FOUND_BY)
    assert len(BUGS) >= 18


@pytest.fixture(scope="module")
def sound() -> Iterator[Simulation]:
    """A simulation without a bug."""
    with Simulation() as simulation:
        yield simulation


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_bug_that_was_put_in_is_found_with_its_seed(name: str, sound: Simulation) -> None:
    # What a seed leads to changes with the code: where it does not find the bug any more, one of
    # those after it must, and should be kept instead.
    first = KEPT["bugs"][name]
    with Simulation() as simulation, bug(name):
        near = range(first, first + NEAR)
        found = next((seed for seed in near if is_found(name, simulation, seed)), None)
    assert found is not None, f"{name} is not found with the seeds from {first} on"
    sound.run(found)


def test_the_command_runs_a_seed_tells_its_story_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "seeds.json"
    arguments = ["--seed", "5", "--script", "2", "--story"]
    arguments += ["--save", "an-odd-one", "--seeds", str(kept)]
    assert command.main(arguments) == 0
    text = capsys.readouterr().out
    assert "coordinator-1: handles Begun" in text
    assert "1 schedules, " in text
    saved = {"an-odd-one": {"customers": "some", "script": 2, "seed": 5}}
    assert json.loads(kept.read_text()) == {"schedules": saved, "bugs": {}}


def test_the_command_runs_and_keeps_another_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "seeds.json"
    arguments = ["--scenario", "join", "--seed", "3", "--count", "2", "--script", "4"]
    assert command.main([*arguments, "--save", "a-join", "--seeds", str(kept)]) == 0
    assert "2 schedules, " in capsys.readouterr().out
    saved = {"a-join": {"scenario": "join", "script": 4, "seed": 3}}
    assert json.loads(kept.read_text())["schedules"] == saved
    with pytest.raises(SystemExit):
        command.main([*arguments, "--customers", "few"])
    assert "only the shop has customers" in capsys.readouterr().err


def test_the_command_fails_with_the_story_of_a_broken_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bug("publish_before_commit"):
        assert command.main(["--seed", "0"]) == 1
    assert "R6: " in capsys.readouterr().out
