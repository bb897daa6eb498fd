"""Schedules in which somebody rescales before the first commit, among everything that goes wrong.

No rule may be broken by it, and the result is that of the reference, as in every schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

SEEDS = range(5000, 5010)


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[SimulatedCluster]]:
    found: list[SimulatedCluster] = []
    with Simulation() as simulation:
        run_all(SEEDS, simulation, found.append)
        yield found


def test_the_first_commit_includes_a_rescale_and_later_ones_settle_it(
    clusters: list[SimulatedCluster],
) -> None:
    settled = 0
    for cluster in clusters:
        commits = cluster.rules.commits
        first = commits.get((0, 1))
        if first is None or not RESCALE.of(first).number:
            continue
        settled += any(
            each.number == 1 and each.outcome is RescaleOutcome.SETTLED
            for commit in commits.values()
            for each in RESCALE.of(commit).history
        )
    assert settled
