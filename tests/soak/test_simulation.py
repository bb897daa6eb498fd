"""A long search for schedules that break a rule, and for every bug that was put in on purpose.

Every core takes part. ``SOAK_SECONDS`` bounds the time of the search (4 hours unless set),
``SOAK_SEED`` is where it begins, ``SOAK_SCRIPTS`` which scripts it goes through ("0-18" are all).
``SOAK_JOIN_SECONDS`` is for how long joins are searched (20 minutes unless set). A schedule that
breaks a rule is told with its history, and the search goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from anabranch.testing.cluster.rule_broken import RuleBroken
from anabranch.testing.join import join
from anabranch.testing.scenario import Scenario
from anabranch.testing.scenarios import Simulated, scenario_of
from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation
from tests.simulation.bugs import BUGS, bug, is_found

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

FIRST = int(os.environ.get("SOAK_SEED", "1000"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "14400"))
JOIN_SECONDS = float(os.environ.get("SOAK_JOIN_SECONDS", "1200"))
JOINS = 500
"""How many schedules a script of the join has."""

PROCESSES = os.cpu_count() or 1
FROM, TO = map(int, os.environ.get("SOAK_SCRIPTS", f"0-{len(SCRIPTS) - 1}").split("-"))
TOLD = 500
"""After so many schedules a script says how far it is."""

pytestmark = pytest.mark.soak


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def search(scenario: Scenario, name: str, seeds: range, ends_at: float) -> tuple[int, list[int]]:
    """Schedules of one scenario, as many as there is time for: their number, and which broke."""
    started, ran, broken = time.process_time(), 0, list[int]()
    with Simulation(scenario) as simulation:
        for seed in seeds:
            if time.monotonic() >= ends_at:
                break
            try:
                simulation.run(seed)
            except RuleBroken as error:
                tell(f"{name}: {error}")
                broken.append(seed)
            ran += 1
            if ran % TOLD == 0:
                rate = ran / (time.process_time() - started)
                tell(
                    f"{name}, seeds {seeds[0]} to {seed}: "
                    f"{len(broken)} broke a rule, {rate:.1f} a second of a core"
                )
    return ran, broken


def run_script(script: int, ends_at: float) -> tuple[int, list[int]]:
    """The schedules of one script of the shop."""
    customers, number = SCRIPTS[script]
    first = FIRST + sum(each for _, each in SCRIPTS[:script])
    scenario = shop(script=script, customers=customers)
    return search(scenario, f"script {script}, {customers}", range(first, first + number), ends_at)


def run_joins(process: int, ends_at: float) -> tuple[int, list[int]]:
    """Joins of one script after the other; other processes have the scripts in between."""
    ran, broken = 0, list[int]()
    script = process
    while time.monotonic() < ends_at:
        first = FIRST + script * JOINS
        found = search(join(script), f"join {script}", range(first, first + JOINS), ends_at)
        ran, broken, script = ran + found[0], broken + found[1], script + PROCESSES
    return ran, broken


@pytest.mark.timeout(4 * 3600 + 600)
def test_a_hundred_thousand_schedules_break_no_rule() -> None:
    run = partial(run_script, ends_at=time.monotonic() + SECONDS)
    scripts = range(FROM, TO + 1)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        results = list(processes.map(run, scripts))
    ran = sum(number for number, _ in results)
    of = sum(SCRIPTS[script][1] for script in scripts)
    tell(f"{ran} of {of} schedules, scripts {FROM} to {TO}, from seed {FIRST} on")
    assert ran
    assert [seed for _, broken in results for seed in broken] == []


@pytest.mark.timeout(JOIN_SECONDS + 600)
def test_twenty_minutes_of_joins_break_no_rule() -> None:
    run = partial(run_joins, ends_at=time.monotonic() + JOIN_SECONDS)
    with ProcessPoolExecutor(
        PROCESSES, mp_context=multiprocessing.get_context("spawn")
    ) as processes:
        results = list(processes.map(run, range(PROCESSES)))
    tell(f"{sum(number for number, _ in results)} schedules of joins, from seed {FIRST} on")
    assert all(number for number, _ in results)
    assert [seed for _, broken in results for seed in broken] == []


@pytest.mark.parametrize("scenario", [Simulated.SHOP, Simulated.JOIN])
@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_search_finds_a_bug_that_was_put_in(name: str, scenario: Simulated) -> None:
    with Simulation(scenario_of(scenario)) as simulation, bug(name):
        for seed in range(FIRST, FIRST + 1000):
            if is_found(name, simulation, seed):
                tell(f"{name}: {scenario}, seed {seed}")
                return
    pytest.fail(f"{name} was not found in 1000 schedules")
