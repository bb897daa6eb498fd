"""Break protocol lines, one at a time, and say which seed or test notices.

Each mutation of ``scripts/mutations.py`` is put into a copy of the tree, never into the tree
itself. The simulation looks for it first, from the seed that is known to find it; where it finds
nothing in its time, the tests that the mutation names are run. The sound tree must pass with every
seed that finds something. Fails unless every mutation is found, and enough of them by a seed.

    python scripts/mutants.py                  all of them, one for each core at a time
    python scripts/mutants.py --only fence     those whose name has this in it
    python scripts/mutants.py --list           what there is
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.mutations import MUTATIONS, Mutation, apply  # noqa: E402

BY_SIMULATION = 24
"""So many must be found by the simulation alone."""

SECONDS = 45.0
"""For how long one is looked for by the simulation, in seconds of a core."""

COPIED = ("src", "tests", "scripts", "examples", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Found:
    """What notices a mutation: a schedule, or a test; neither: nothing did."""

    mutation: Mutation
    schedule: tuple[str, int] | None = None
    test: str | None = None
    said: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line, for the table."""
        by = "NOTHING"
        if self.schedule is not None:
            by = f"{self.schedule[0]}, seed {self.schedule[1]}"
        elif self.test is not None:
            by = self.test
        return f"{self.mutation.name:44} {by:34} {self.seconds:4.0f} s  {self.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for all mutations that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the simulation, for one")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("--look", nargs=3, metavar=("SCENARIO", "SEED", "SECONDS"))
    parser.add_argument("--sound", metavar="SCHEDULES", help="scenario:seed,...")
    chosen = parser.parse_args(arguments)
    if chosen.look is not None:
        return look(chosen.look[0], int(chosen.look[1]), float(chosen.look[2]))
    if chosen.sound is not None:
        return sound(chosen.sound.split(","))
    wanted = [each for each in MUTATIONS if chosen.only in each.name]
    if chosen.list:
        print("\n".join(f"{each.name:44} {each.file}: {each.breaks}" for each in wanted))
        return 0
    started = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        hunts = [threads.submit(hunt, mutation, chosen.seconds) for mutation in wanted]
        for done in as_completed(hunts):
            print(done.result(), flush=True)
        found = [done.result() for done in hunts]
    return verdict(found, time.monotonic() - started, whole=not chosen.only)


def hunt(mutation: Mutation, seconds: float) -> Found:
    """Look for one mutation in a copy of the tree."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anabranch-mutant-") as name:
        copy = Path(name)
        for each in COPIED:
            _copy(ROOT / each, copy / each)
        path = copy / mutation.file
        path.write_text(apply(mutation, path.read_text()))
        found = Found(mutation)
        if mutation.simulated:
            found = _by_simulation(mutation, copy, seconds)
        if found.schedule is None:
            found = _by_tests(mutation, copy)
    seconds = time.monotonic() - started
    return Found(mutation, found.schedule, found.test, found.said, seconds)


def verdict(found: Sequence[Found], seconds: float, *, whole: bool) -> int:
    """Say how many were found, and whether that is enough; 1 if not."""
    missed = [each.mutation.name for each in found if each.schedule is None and each.test is None]
    schedules = sorted({each.schedule for each in found if each.schedule is not None})
    simulated = sum(each.schedule is not None for each in found)
    print(f"{len(found)} mutations, {simulated} found by the simulation, {seconds:.0f} s")
    if missed:
        print(f"not found: {', '.join(missed)}")
    broken = 0
    if schedules:
        names = ",".join(f"{scenario}:{seed}" for scenario, seed in schedules)
        broken = _run(ROOT, [__file__, "--sound", names]).returncode
    few = whole and simulated < BY_SIMULATION
    return int(bool(missed or broken or few))


def look(first: str, seed: int, seconds: float) -> int:
    """Run schedules of a mutated tree until one breaks a rule, and say which as JSON."""
    from anabranch.testing.cluster.rule_broken import RuleBroken  # noqa: PLC0415
    from anabranch.testing.simulation import Simulation  # noqa: PLC0415
    from tests.simulation.schedules import scenario_by_name  # noqa: PLC0415

    made: dict[str, Simulation] = {}
    for scenario, number in _schedules(first, seed):
        if time.process_time() > seconds:
            break
        if scenario not in made:
            made[scenario] = Simulation(scenario_by_name(scenario))
        try:
            made[scenario].run(number)
        except RuleBroken as error:
            said = str(error).splitlines()[0].partition(": ")[2]
            print(json.dumps({"scenario": scenario, "seed": number, "said": said[:160]}))
            break
    for simulation in made.values():
        simulation.close()
    return 0


def sound(schedules: Sequence[str]) -> int:
    """Run schedules of the tree as it is; 1 if one of them breaks a rule."""
    from anabranch.testing.cluster.rule_broken import RuleBroken  # noqa: PLC0415
    from anabranch.testing.simulation import Simulation  # noqa: PLC0415
    from tests.simulation.schedules import scenario_by_name  # noqa: PLC0415

    broken = 0
    for scenario in sorted({each.partition(":")[0] for each in schedules}):
        with Simulation(scenario_by_name(scenario)) as simulation:
            for each in schedules:
                if each.partition(":")[0] == scenario:
                    try:
                        simulation.run(int(each.partition(":")[2]))
                    except RuleBroken as error:
                        print(f"the sound tree fails: {scenario}, {str(error).splitlines()[0]}")
                        broken = 1
    return broken


def _schedules(first: str, seed: int) -> Iterator[tuple[str, int]]:
    """What is known to find it and what comes right after, then all scenarios in turn."""
    from tests.simulation.schedules import SCENARIOS  # noqa: PLC0415

    yield from ((first, seed + more) for more in range(10))
    number = 0
    while True:
        for scenario in SCENARIOS:
            yield from ((scenario, number + more) for more in range(10))
        number += 10


def _by_simulation(mutation: Mutation, copy: Path, seconds: float) -> Found:
    scenario, seed = mutation.schedule
    script = str(copy / "scripts" / "mutants.py")
    asked = [script, "--look", scenario, str(seed), str(seconds)]
    done = _run(copy, asked, timeout=20 * seconds)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            return Found(mutation, (told["scenario"], told["seed"]), said=told["said"])
    if done.returncode:
        raise RuntimeError(f"{mutation.name}: {done.stdout[-2000:]}")
    return Found(mutation)


def _by_tests(mutation: Mutation, copy: Path) -> Found:
    for test in mutation.tests:
        options = ["-q", "-x", "-m", "not soak and not spark", "-p", "no:cacheprovider"]
        done = _run(copy, ["-m", "pytest", *options, test], timeout=600)
        if done.returncode == 1:
            failed = [each for each in done.stdout.splitlines() if each.startswith("FAILED ")]
            name = failed[0].split()[1].rpartition("::")[2] if failed else ""
            return Found(mutation, test=test, said=name)
        if done.returncode:
            raise RuntimeError(f"{mutation.name}: {test}: {done.stdout[-2000:]}")
    return Found(mutation)


def _run(
    tree: Path, arguments: Sequence[str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the modules of a tree."""
    found = os.pathsep.join([str(tree / "src"), str(tree)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": found, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE if tree != ROOT else None,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    sys.exit(main())
