"""Schedules in which sinks are often away when a node opens them."""

from __future__ import annotations

import pytest

from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.scenarios import Simulated, scenario_of
from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

# Among them 64, which finds steps that run before all sinks have taken back.
SEEDS = range(40, 80)

pytestmark = pytest.mark.timeout(900)


def test_no_rule_is_broken_though_sinks_are_opened_late_and_take_back_late() -> None:
    away: list[int] = []
    rewinds = 0

    def look(cluster: SimulatedCluster) -> None:
        nonlocal rewinds
        away.append(sum(what == "is away" for *_, what in cluster.history))
        rewinds += cluster.rules.branch

    with Simulation(scenario_of(Simulated.AWAY)) as simulation:
        assert run_all(SEEDS, simulation, look) == len(SEEDS)
    assert sum(count > 0 for count in away) > len(SEEDS) / 2
    assert rewinds > 0
