"""Coordinator and node are killed inside a rescale: it goes on after the restart, and ends.

Where it is killed is chosen by a seed: while workers are asked, while bins are collected, while
they are acquired, or when all is there. Output and state are those of plain Python, each row once.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from anabranch.http.schemas import ScaleRequest
from anabranch.protocol.status import RescaleStatus, Status
from tests.spark.killing import Site, until
from tests.spark.test_kill import committed
from tests.spark.test_process_kills import right_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("ANABRANCH_KILLS", "20"))
FURTHEST = 4
"""A rescale of small state is over after about so many steps."""


def owners(status: Status) -> list[int]:
    return [len(set(region.bins)) for region in status.regions]


def one_step(site: Site) -> None:
    """Let the stuck step end, and wait until the next one is stuck."""
    before = committed(site.base)
    site.let_go()
    until(lambda: committed(site.base) > before, "the end of a stuck step")
    site.hold()


def inside_a_rescale(site: Site, workers: int, steps: int) -> RescaleStatus:
    """Ask for workers and stop so many steps later, in the middle of one."""
    site.hold()
    assert not site.client().scale(ScaleRequest(workers), seconds=0).done
    for _ in range(steps):
        one_step(site)
    status = site.status()
    assert status is not None
    assert status.rescale is not None, f"it was over after {steps} steps"
    return status.rescale


def kill_inside_a_rescale(site: Site, chance: random.Random, *, node: bool) -> str:
    """Kill the coordinator, or both, inside a rescale; gives the phase that it was in."""
    before = site.running()
    workers = chance.choice([n for n in (1, 2, 3, 4) if [n, n] != owners(before)])
    under_way = inside_a_rescale(site, workers, chance.randrange(1, FURTHEST))
    site.coordinator.kill()
    if node:
        site.kill_node(tree=True)
    site.let_go()
    site.run()

    def over() -> Status | None:
        assert site.coordinator.process.poll() is None, site.coordinator.printed()
        status = site.status()
        numbers = [] if status is None else [each.number for each in status.rescales]
        return status if under_way.number in numbers else None

    status = until(over, f"the end of rescale {under_way.number}, {under_way.phase}")
    (last,) = [each for each in status.rescales if each.number == under_way.number]
    assert (last.outcome, owners(status)) == ("settled", [workers, workers])
    assert last.moved.bins > 0
    site.more(1)
    site.check()
    return under_way.phase


def test_killed_twice_inside_a_rescale(site: Site, seed: int) -> None:
    chance = random.Random(seed)
    phases = [kill_inside_a_rescale(site, chance, node=node) for node in (False, True)]
    print(f"killed while {phases}")
    site.client().shutdown()
    site.coordinator.ended()
    right_to_the_end(site)


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_killed_inside_many_rescales(site: Site, seed: int) -> None:
    chance = random.Random(seed)
    phases: Counter[str] = Counter()
    for number in range(KILLS):
        print(f"kill {number + 1} of {KILLS}, step {committed(site.base)}", flush=True)
        phases[kill_inside_a_rescale(site, chance, node=number % 2 == 1)] += 1
    print(f"killed while {dict(phases)}")
    assert len(phases) > 1
    site.client().shutdown()
    site.coordinator.ended()
    right_to_the_end(site)
