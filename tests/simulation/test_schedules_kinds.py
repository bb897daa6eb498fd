"""Schedules with every kind of source and sink that a node treats in its own way."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from anabranch.records.slices import FileSlice, OffsetSlice
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.kinds import kinds
from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

SEEDS = range(0, 60)

pytestmark = pytest.mark.timeout(900)


@dataclass
class Seen:
    """What came up in any of the schedules."""

    schedules: int = 0
    happened: set[str] = field(default_factory=set)
    given: list[int] = field(default_factory=list)
    read: set[tuple[type, ...]] = field(default_factory=set)

    def look(self, cluster: SimulatedCluster) -> None:
        self.happened |= {what for *_, what in cluster.history}
        for plan in cluster.rules.ownership.plans.values():
            slices = [part for each in plan.inputs for part in each.slices]
            self.given.append(sum(isinstance(part, FileSlice) for part in slices))
            self.read.add(tuple(sorted({type(part) for part in slices}, key=repr)))


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = Seen()
    with Simulation(kinds()) as simulation:
        found.schedules = run_all(SEEDS, simulation, found.look)
    return found


def test_no_rule_is_broken_and_the_result_is_that_of_the_reference(seen: Seen) -> None:
    assert seen.schedules == len(SEEDS)


def test_offsets_are_read_alone_and_together_with_files(seen: Seen) -> None:
    assert {(OffsetSlice,), (FileSlice, OffsetSlice)} <= seen.read
    assert max(seen.given) == 2, "no offer of files has grown"


def test_nodes_are_left_behind_and_go_on(seen: Seen) -> None:
    assert "is stranded" in seen.happened
