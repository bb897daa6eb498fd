"""Schedules of a simulated cluster with everything that can go wrong: half of those of a test run.

They are in two files so that two processes share them. In half of them somebody rescales.
"""

from __future__ import annotations

import pytest

from anabranch.testing.simulation import Simulation
from tests.simulation.schedules import run_all

SEEDS = range(0, 500)


@pytest.mark.timeout(900)
def test_no_rule_is_broken_and_the_result_is_that_of_the_reference() -> None:
    with Simulation() as simulation:
        assert run_all(SEEDS, simulation) == len(SEEDS)
