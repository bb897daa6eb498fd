"""Schedules of shops with other customers: the other half of those of a test run.

A storm of new keys, one hot key, fewer keys than workers, giant keys, a region without state; in
half of the schedules somebody rescales.
"""

from __future__ import annotations

import pytest

from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

SEEDS = {
    Customers.STORM: range(500, 565),
    Customers.HOT: range(660, 705),
    Customers.FEW: range(770, 810),
    Customers.STATELESS: range(870, 910),
    Customers.GIANT: range(970, 980),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("customers", SEEDS)
def test_no_rule_is_broken_and_the_result_is_that_of_the_reference(customers: Customers) -> None:
    seeds = SEEDS[customers]
    with Simulation(shop(customers=customers)) as simulation:
        assert run_all(seeds, simulation) == len(seeds)
