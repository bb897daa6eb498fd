"""``python -m anabranch.testing``: run schedules of the default scenario from their seeds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from anabranch.testing.cluster.rules import RuleBroken
from anabranch.testing.shop import Customers, shop
from anabranch.testing.simulation import Simulation

SEEDS = Path("tests/simulation/seeds.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedules that are asked for; gives 1 if a rule was broken."""
    parser = argparse.ArgumentParser("python -m anabranch.testing", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many schedules")
    parser.add_argument(
        "--customers", type=Customers, default=Customers.SOME, help=", ".join(Customers)
    )
    parser.add_argument("--script", type=int, default=0, help="which orders they give")
    parser.add_argument("--story", action="store_true", help="tell what happened in any case")
    parser.add_argument("--save", metavar="NAME", help="keep the seed as a test of this name")
    parser.add_argument("--seeds", type=Path, default=SEEDS, help="where seeds are kept")
    chosen = parser.parse_args(arguments)
    if chosen.save is not None:
        save(chosen.seeds, chosen.save, chosen.seed, chosen.customers, chosen.script)
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    return run(seeds, chosen.customers, chosen.script, story=chosen.story)


def run(seeds: range, customers: Customers, script: int = 0, *, story: bool = False) -> int:
    """Run these schedules, and print the rate; the first that breaks a rule ends it."""
    started, spent = time.perf_counter(), time.process_time()
    with Simulation(shop(script, customers=customers)) as simulation:
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


def save(path: Path, name: str, seed: int, customers: Customers, script: int) -> None:
    """Keep a seed under a name."""
    kept = json.loads(path.read_text()) if path.exists() else {"schedules": {}, "bugs": {}}
    kept["schedules"][name] = {"seed": seed, "customers": customers, "script": script}
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
