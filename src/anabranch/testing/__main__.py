"""``python -m anabranch.testing``: run schedules of a scenario from their seeds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.testing.cluster.rule_broken import RuleBroken
from anabranch.testing.scenario import Scenario
from anabranch.testing.scenarios import Simulated, scenario_of
from anabranch.testing.shop import Customers
from anabranch.testing.simulation import Simulation

SEEDS = Path("tests/simulation/seeds.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedules that are asked for; gives 1 if a rule was broken."""
    parser = argparse.ArgumentParser("python -m anabranch.testing", description=__doc__)
    parser.add_argument(
        "--scenario", type=Simulated, default=Simulated.SHOP, help=", ".join(Simulated)
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many schedules")
    parser.add_argument("--customers", type=Customers, help=f"of the shop: {', '.join(Customers)}")
    parser.add_argument("--script", type=int, default=0, help="which input it has")
    parser.add_argument("--story", action="store_true", help="tell what happened in any case")
    parser.add_argument("--save", metavar="NAME", help="keep the seed as a test of this name")
    parser.add_argument("--seeds", type=Path, default=SEEDS, help="where seeds are kept")
    chosen = parser.parse_args(arguments)
    asked: dict[str, Any] = {"script": chosen.script}
    if chosen.scenario is Simulated.SHOP:
        asked["customers"] = chosen.customers or Customers.SOME
    elif chosen.customers is not None:
        parser.error("--customers: only the shop has customers of several kinds")
    else:
        asked["scenario"] = chosen.scenario
    if chosen.save is not None:
        save(chosen.seeds, chosen.save, {**asked, "seed": chosen.seed})
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    return run(seeds, scenario_of(**asked), story=chosen.story)


def run(seeds: range, scenario: Scenario, *, story: bool = False) -> int:
    """Run these schedules, and print the rate; the first that breaks a rule ends it."""
    started, spent = time.perf_counter(), time.process_time()
    with Simulation(scenario) as simulation:
        for seed in seeds:
            try:
                cluster = simulation.run(seed)
            except RuleBroken as error:
                sys.stdout.write(f"{error}\n")
                return 1
            if story:
                sys.stdout.write("\n".join(cluster.story()) + "\n")
    seconds, spent = time.perf_counter() - started, time.process_time() - spent
    rate = f"{len(seeds) / seconds:.1f} a second, {len(seeds) / spent:.1f} a second of a core"
    sys.stdout.write(f"{len(seeds)} schedules, {rate}\n")
    return 0


def save(path: Path, name: str, schedule: Mapping[str, Any]) -> None:
    """Keep a seed, and the scenario that it is of, under a name."""
    kept = json.loads(path.read_text()) if path.exists() else {"schedules": {}, "bugs": {}}
    kept["schedules"][name] = schedule
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
