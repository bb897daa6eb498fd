"""Schedules of a simulated cluster with everything that can go wrong: half of those of a test run.

They are in two files so that two processes share them. In half of them somebody rescales.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import Rebalance, Scale
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.faults import Fault
from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

SEEDS = range(0, 200)

EVENTS = ("LeaderFenced", "RepairWritten", "BranchMade", "CheckpointWritten", "NodeLost")
HAPPENS = {
    *map(str, Fault),
    *(f"handles {event}" for event in EVENTS),
    *("is dead", "is frozen", "late attempt", "orphaned attempt", "calm"),
}

pytestmark = pytest.mark.timeout(900)


@dataclass
class Seen:
    """What came up in any of the schedules."""

    schedules: int = 0
    happened: set[str] = field(default_factory=set)
    outcomes: set[RescaleOutcome] = field(default_factory=set)
    requests: set[type] = field(default_factory=set)

    def look(self, cluster: SimulatedCluster) -> None:
        self.happened |= HAPPENS & {what for *_, what in cluster.history}
        for commit in cluster.rules.commits.values():
            self.outcomes |= {each.outcome for each in RESCALE.of(commit).history}
            self.requests |= {type(each.request) for each in RESCALE.of(commit).history}


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = Seen()
    with Simulation() as simulation:
        found.schedules = run_all(SEEDS, simulation, found.look)
    return found


def test_no_rule_is_broken_and_the_result_is_that_of_the_reference(seen: Seen) -> None:
    assert seen.schedules == len(SEEDS)


def test_everything_that_can_go_wrong_does(seen: Seen) -> None:
    assert seen.happened == HAPPENS


def test_bins_move_in_every_way_that_can_be_asked_for(seen: Seen) -> None:
    assert seen.outcomes >= set(RescaleOutcome) - {RescaleOutcome.REOPENED}
    assert seen.requests >= {Scale, Rebalance}
