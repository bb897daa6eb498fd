"""A long search for schedules that break a rule, and for every bug that was put in on purpose.

Every core takes part. ``SOAK_SECONDS`` bounds the time of the search (4 hours unless set),
``SOAK_SEED`` is where it begins.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from anabranch.testing.rules import RuleBroken
from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation
from tests.simulation.bugs import BUGS, bug
from tests.simulation.schedules import run_all

SCRIPTS = (
    *[(Customers.SOME, 6_000)] * 5,
    *[(Customers.STORM, 6_000)] * 4,
    *[(Customers.HOT, 5_000)] * 3,
    *[(Customers.FEW, 5_000)] * 3,
    *[(Customers.STATELESS, 5_000)] * 3,
    (Customers.GIANT, 1_000),
)
"""Who comes in each script, and how many schedules it has. The files of giant keys have names of
their own in every schedule, so that nothing is computed once for all: they take five times as long.
"""

SCHEDULES = sum(number for _, number in SCRIPTS)
FIRST = int(os.environ.get("SOAK_SEED", "1000"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "14400"))

pytestmark = pytest.mark.soak


def until(seeds: range, ends_at: float) -> Iterator[int]:
    return itertools.takewhile(lambda seed: time.monotonic() < ends_at, seeds)


def run_script(script: int, ends_at: float) -> int:
    """The schedules of one script, as many as there is time for; gives their number."""
    customers, number = SCRIPTS[script]
    first = FIRST + sum(each for _, each in SCRIPTS[:script])
    with Simulation(shop(script=script, customers=customers)) as simulation:
        return run_all(until(range(first, first + number), ends_at), simulation)


@pytest.mark.timeout(4 * 3600 + 600)
def test_a_hundred_thousand_schedules_break_no_rule() -> None:
    run = partial(run_script, ends_at=time.monotonic() + SECONDS)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        ran = sum(processes.map(run, range(len(SCRIPTS))))
    sys.stdout.write(f"{ran} of {SCHEDULES} schedules, from seed {FIRST} on\n")
    assert ran


@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_search_finds_a_bug_that_was_put_in(name: str) -> None:
    with Simulation() as simulation, bug(name):
        for seed in range(FIRST, FIRST + 1000):
            try:
                simulation.run(seed)
            except RuleBroken as error:
                sys.stdout.write(f"{name}: {str(error).splitlines()[0]}\n")
                return
    pytest.fail(f"{name} was not found in 1000 schedules")
