"""Break protocol lines, one at a time, and say which seed or test notices.

Each mutation of ``scripts/mutations.py`` is put into a copy of the tree, never into the tree
itself. First comes what ``scripts/mutation_finders.json`` has on record: the seed or the test that
found it before. Where that finds nothing, the code has changed since: the simulation looks for it
for a while, then the tests that the mutation names. The sound tree must pass with every seed that
finds something. Fails unless every mutation is found, and enough of them by a seed.

    python scripts/mutants.py                  all of them, one for each core at a time
    python scripts/mutants.py --record         the same, and put what has found them on record
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.mutations import MUTATIONS, Mutation, apply  # noqa: E402

FINDERS = ROOT / "scripts" / "mutation_finders.json"

BY_SIMULATION = 24
"""So many must be found by the simulation alone."""

SECONDS = 45.0
"""For how long one is looked for by the simulation, in seconds of a core."""

TEST_SECONDS = 900.0
COPIED = ("src", "tests", "scripts", "examples", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Finder:
    """What finds a mutation: a schedule, which is a scenario and a seed, or a test by its id."""

    schedule: tuple[str, int] | None = None
    test: str | None = None

    @classmethod
    def of(cls, kept: Mapping[str, object]) -> Finder:
        """The finder on record."""
        match kept:
            case {"scenario": str(scenario), "seed": int(seed)}:
                return cls(schedule=(scenario, seed))
            case {"test": str(test)}:
                return cls(test=test)
        raise ValueError(f"not a finder: {kept}")

    def kept(self) -> dict[str, object]:
        """The finder as it is put on record."""
        if self.schedule is None:
            return {"test": self.test}
        return {"scenario": self.schedule[0], "seed": self.schedule[1]}

    def __str__(self) -> str:
        """For the table."""
        if self.schedule is not None:
            return f"{self.schedule[0]}, seed {self.schedule[1]}"
        return str(self.test)


@dataclass(frozen=True, slots=True)
class Found:
    """What has noticed a mutation, if anything, and whether that was on record."""

    mutation: Mutation
    finder: Finder | None = None
    said: str = ""
    recorded: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line, for the table."""
        by = "NOTHING" if self.finder is None else str(self.finder)
        new = "" if self.recorded or self.finder is None else " (not on record)"
        return f"{self.mutation.name:44} {self.seconds:4.0f} s  {by}{new}  {self.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for all mutations that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the simulation, for one")
    parser.add_argument("--record", action="store_true", help="put on record what finds them")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("--run", nargs=2, metavar=("SCENARIO", "SEED"), help="one schedule")
    parser.add_argument("--search", metavar="SECONDS", type=float, help="many schedules")
    parser.add_argument("--sound", metavar="SCHEDULES", help="scenario:seed,...")
    chosen = parser.parse_args(arguments)
    if chosen.run is not None:
        return look([(chosen.run[0], int(chosen.run[1]))])
    if chosen.search is not None:
        return look(schedules(), chosen.search)
    if chosen.sound is not None:
        return sound(chosen.sound.split(","))
    wanted = [each for each in MUTATIONS if chosen.only in each.name]
    if chosen.list:
        print("\n".join(f"{each.name:44} {each.file}: {each.breaks}" for each in wanted))
        return 0
    started, finders = time.monotonic(), read_finders()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        hunts = [
            threads.submit(hunt, mutation, finders.get(mutation.name), chosen.seconds)
            for mutation in wanted
        ]
        for done in as_completed(hunts):
            print(done.result(), flush=True)
        found = [done.result() for done in hunts]
    if chosen.record:
        record(found, finders)
    return verdict(found, time.monotonic() - started, whole=not chosen.only)


def read_finders() -> dict[str, Finder]:
    """What finds each mutation, by its name."""
    kept = json.loads(FINDERS.read_text())
    return {name: Finder.of(each) for name, each in kept.items()}


def record(found: Sequence[Found], before: Mapping[str, Finder]) -> None:
    """Put on record what has found mutations; those that are gone are forgotten."""
    new = {each.mutation.name: each.finder for each in found if each.finder is not None}
    finders = {**before, **new}
    kept = {each.name: finders[each.name].kept() for each in MUTATIONS if each.name in finders}
    lines = (f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in kept)
    FINDERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def hunt(mutation: Mutation, known: Finder | None, seconds: float) -> Found:
    """Look for one mutation in a copy of the tree."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anabranch-mutant-") as name:
        copy = Path(name)
        for each in COPIED:
            _copy(ROOT / each, copy / each)
        path = copy / mutation.file
        path.write_text(apply(mutation, path.read_text()))
        found = Found(mutation) if known is None else _by_record(mutation, known, copy)
        if found.finder is None and mutation.simulated:
            found = _by_schedules(mutation, copy, ["--search", str(seconds)], 20 * seconds)
        for test in mutation.tests:
            if found.finder is None:
                found = _by_test(mutation, copy, test)
    return replace(found, seconds=time.monotonic() - started)


def verdict(found: Sequence[Found], seconds: float, *, whole: bool) -> int:
    """Say how many were found, and whether that is enough; 1 if not."""
    missed = [each.mutation.name for each in found if each.finder is None]
    by_seed = [each.finder.schedule for each in found if each.finder and each.finder.schedule]
    on_record = sum(each.recorded for each in found)
    print(
        f"{len(found)} mutations, {len(by_seed)} found by the simulation, "
        f"{len(found) - len(by_seed) - len(missed)} by tests, {on_record} as on record, "
        f"{seconds:.0f} s"
    )
    if missed:
        print(f"not found: {', '.join(missed)}")
    broken = 0
    if by_seed:
        names = ",".join(f"{scenario}:{seed}" for scenario, seed in sorted({*by_seed}))
        broken = _run(ROOT, [__file__, "--sound", names]).returncode
    few = whole and len(by_seed) < BY_SIMULATION
    return int(bool(missed or broken or few))


def look(asked: Iterator[tuple[str, int]] | Sequence[tuple[str, int]], seconds: float = 0.0) -> int:
    """Run schedules of a mutated tree until one breaks a rule, and say which as JSON.

    With ``seconds`` no longer than that, of a core.
    """
    from anabranch.testing.cluster.rule_broken import RuleBroken  # noqa: PLC0415
    from anabranch.testing.simulation import Simulation  # noqa: PLC0415
    from tests.simulation.schedules import scenario_by_name  # noqa: PLC0415

    made: dict[str, Simulation] = {}
    for scenario, number in asked:
        if seconds and time.process_time() > seconds:
            break
        if scenario not in made:
            made[scenario] = Simulation(scenario_by_name(scenario))
        try:
            made[scenario].run(number)
        except RuleBroken as error:
            if isinstance(error.__cause__, NameError | ImportError):
                raise  # It is no find that the mutation itself is wrong.
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


def schedules() -> Iterator[tuple[str, int]]:
    """All scenarios in turn, ten seeds each, without end."""
    from tests.simulation.schedules import SCENARIOS  # noqa: PLC0415

    number = 0
    while True:
        for scenario in SCENARIOS:
            yield from ((scenario, number + more) for more in range(10))
        number += 10


def _by_record(mutation: Mutation, known: Finder, copy: Path) -> Found:
    if known.schedule is not None:
        scenario, seed = known.schedule
        found = _by_schedules(mutation, copy, ["--run", scenario, str(seed)], 600.0)
    else:
        found = _by_test(mutation, copy, known.test or "")
    return replace(found, recorded=found.finder is not None)


def _by_schedules(mutation: Mutation, copy: Path, asked: Sequence[str], timeout: float) -> Found:
    done = _run(copy, [str(copy / "scripts" / "mutants.py"), *asked], timeout=timeout)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            return Found(mutation, Finder((told["scenario"], told["seed"])), told["said"])
    if done.returncode:
        raise RuntimeError(f"{mutation.name}: {done.stdout[-2000:]}")
    return Found(mutation)


def _by_test(mutation: Mutation, copy: Path, test: str) -> Found:
    """Run a test or a directory of them; what fails first is the finder, without parameters."""
    options = ["-q", "-x", "-m", "not soak and not spark", "-p", "no:cacheprovider"]
    done = _run(copy, ["-m", "pytest", *options, test], timeout=TEST_SECONDS)
    if done.returncode not in (0, 1) or "NameError: " in done.stdout:
        raise RuntimeError(f"{mutation.name}: {test}: {done.stdout[-2000:]}")
    failed = [each for each in done.stdout.splitlines() if each.startswith("FAILED ")]
    if not failed:
        return Found(mutation)
    name = failed[0].removeprefix("FAILED ").partition(" - ")[0].partition("[")[0]
    return Found(mutation, Finder(test=name))


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
