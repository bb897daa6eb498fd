"""Schedules with event time: windows, sessions, timers and a join, with all that can go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.faults import Fault
from anabranch.testing.simulation import Simulation
from anabranch.testing.times import times
from tests.simulation.schedules import run_all

SEEDS = range(0, 150)

pytestmark = pytest.mark.timeout(900)


@dataclass
class Seen:
    """What came up in any of the schedules."""

    schedules: int = 0
    happened: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    cuts: set[tuple[int, ...]] = field(default_factory=set)

    def look(self, cluster: SimulatedCluster) -> None:
        self.happened |= {what for *_, what in cluster.history}
        line = cluster.rules.ownership.line
        for commit in line.commits.values():
            self.moved |= {move.region for move in RESCALE.of(commit).handing}
        self.cuts.add(tuple(line.read(max(line.commits))))


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = Seen()
    with Simulation(times()) as simulation:
        found.schedules = run_all(SEEDS, simulation, found.look)
    return found


def test_no_rule_is_broken_and_the_result_is_that_of_the_reference(seen: Seen) -> None:
    assert seen.schedules == len(SEEDS)


def test_everything_that_can_go_wrong_does(seen: Seen) -> None:
    events = ("LeaderFenced", "RepairWritten", "BranchMade", "CheckpointWritten", "NodeLost")
    assert seen.happened >= {*map(str, Fault), *(f"handles {event}" for event in events)}


def test_bins_of_all_regions_move(seen: Seen) -> None:
    assert seen.moved >= {"by-who", "by-window", "by-buyer", "clicks"}


def test_empty_steps_come_in_different_places(seen: Seen) -> None:
    assert len(seen.cuts) > 3
