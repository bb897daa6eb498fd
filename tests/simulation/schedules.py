"""Running many schedules, and saying how fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

from anabranch.testing.cluster.cluster import SimulatedCluster
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
