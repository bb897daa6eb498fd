"""Running many schedules, and saying how fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping

from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.join import join
from anabranch.testing.kinds import kinds
from anabranch.testing.scenario import Scenario
from anabranch.testing.scenarios import OFTEN_AWAY
from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation


def run_all(
    seeds: Iterable[int],
    simulation: Simulation,
    look: Callable[[SimulatedCluster], None] = lambda cluster: None,
) -> int:
    """Run schedules until one breaks a rule; prints and gives their number.

    ``look`` is shown every schedule that has ended.
    """
    started, number = time.process_time(), 0
    for seed in seeds:
        look(simulation.run(seed))
        number += 1
    seconds = time.process_time() - started
    sys.stdout.write(f"{number} schedules, {number / seconds:.1f} a second of a core\n")
    return number


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "shop": shop,
    "join": join,
    "kinds": kinds,
    "away": lambda: shop(sinks_away=OFTEN_AWAY),
    "storm": lambda: shop(customers=Customers.STORM),
}
"""What mutations are looked for in, the quickest first."""


def scenario_by_name(name: str) -> Scenario:
    """One of ``SCENARIOS``."""
    return SCENARIOS[name]()
