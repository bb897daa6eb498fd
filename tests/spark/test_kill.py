"""The whole process tree is killed again and again: nothing is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.spark import killable

pytestmark = pytest.mark.spark

APP = "kill_app"
MODULUS = 2**61 - 1
DEADLINE = 240.0


@dataclass
class Story:
    """Input, and what must come out of it, computed without Spark and without Anabranch."""

    seed: int
    steps: int
    files: list[list[dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        for _ in range(self.steps):
            rows = [
                {
                    "name": f"n{chance.randrange(23)}",
                    "other": chance.randrange(11),
                    "value": chance.randrange(1000),
                }
                for _ in range(chance.randrange(1, 40))
            ]
            self.files.append(rows)

    def write(self, base: Path) -> None:
        directory = base / "in"
        directory.mkdir(parents=True)
        for number, rows in enumerate(self.files):
            path = directory / f"{number:05d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, ns=(number * 10**9, number * 10**9))

    def expected(self) -> tuple[dict[str, int], dict[int, tuple[int, int]], list[Any], list[Any]]:
        """Both states, and both sinks' rows with their steps."""
        mixed: dict[str, int] = {}
        counted: dict[int, tuple[int, int]] = {}
        first: list[Any] = []
        second: list[Any] = []
        for step, rows in enumerate(self.files, start=1):
            emitted: list[tuple[int, int, int]] = []
            for row in rows:
                new = (mixed.get(row["name"], 7) * 31 + row["value"] + 1) % MODULUS
                mixed[row["name"]] = new
                remainder = row["value"] % 5
                if remainder:
                    emitted.append((row["other"], row["value"], new))
                if remainder == 1:
                    emitted.append((row["other"] + 1, row["value"], new))
            first += [(step, *each) for each in emitted]
            for other, value, new in emitted:
                if value % 7 == 3:
                    continue
                count, sofar = counted.get(other, (0, 3))
                counted[other] = (count + 1, (sofar * 131 + new) % MODULUS)
                second.append((step, other, *counted[other]))
        return mixed, counted, first, second


class App:
    """The pipeline's process, with everything that it starts."""

    def __init__(self, base: Path, stop_at: str = "", app: str = APP) -> None:
        (base / "reached").unlink(missing_ok=True)
        self._log = (base / "log.txt").open("ab")
        self._process = subprocess.Popen(
            killable.command(app, base, stop_at),
            stdout=self._log,
            stderr=self._log,
            cwd=killable.ROOT,
        )
        self._base = base

    def kill(self) -> None:
        """SIGKILL to the whole tree: driver, JVM, Python workers."""
        try:
            root = psutil.Process(self._process.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(tree, timeout=10)
        self._log.close()

    def finish(self) -> None:
        """Let it run to its end."""
        code = self._process.wait(timeout=DEADLINE)
        self._log.close()
        assert code == 0, self.log()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE
        while not condition():
            assert self._process.poll() is None, f"ended too early: {self.log()}"
            assert time.monotonic() < until, f"never happened: {self.log()}"
            time.sleep(0.005)

    def log(self) -> str:
        return (self._base / "log.txt").read_text(errors="replace")[-3000:]


def committed(base: Path) -> int:
    directory = base / "state" / "journal" / "commit" / "0"
    names = [n for n in os.listdir(directory) if n.isdigit()] if directory.exists() else []
    return max(map(int, names), default=0)


def kill_at_point(base: Path, point: str, step: int, program: str = APP) -> None:
    app = App(base, f"{point}:{step}", program)
    app.wait_for((base / "reached").exists)
    app.kill()


def kill_after_run_files(base: Path, step: int) -> None:
    """Kill as soon as a run file of the step is there, before the step is committed."""
    app = App(base)
    runs = base / "state" / "run"
    app.wait_for(lambda: any(runs.glob(f"*/{step:012d}-*.arrow")))
    app.kill()
    assert committed(base) < step, "the step was committed before it could be killed"


def kill_at_random(base: Path, chance: random.Random, step: int) -> None:
    app = App(base)
    app.wait_for(lambda: committed(base) >= step)
    time.sleep(chance.random() * 0.5)
    app.kill()


def rows_of(base: Path, sink: str) -> list[Any]:
    """A sink's rows as its users see them, each with the step its file is named after."""
    found: list[Any] = []
    for path in sorted((base / sink).glob("step-*")):
        step = int(path.name.split("-")[1])
        if path.suffix == ".json":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            rows = pq.read_table(path).to_pylist()
        found += [(step, *row.values()) for row in rows]
    return found


def check(base: Path, story: Story) -> None:
    mixed, counted, first, second = story.expected()
    result = json.loads((base / "result.json").read_text())
    assert result["step"] == story.steps
    states = result["states"]
    assert {row["name"]: row["mixed"] for row in states["chain"]} == mixed
    assert {r["other"]: (r["count"], r["mixed"]) for r in states["second"]} == counted
    assert sorted(rows_of(base, "first")) == sorted(first)
    assert sorted(rows_of(base, "second")) == sorted(second)


@pytest.mark.timeout(900)
def test_killed_at_every_point(tmp_path: Path) -> None:
    base = tmp_path
    story = Story(20, 16)
    story.write(base)
    kill_after_run_files(base, 3)
    kill_at_point(base, "committed", 6)
    kill_at_point(base, "publishing out-second", 8)
    # Twice in one step: after the plan, and before the commit.
    kill_at_point(base, "planned", 11)
    kill_at_point(base, "ran", 11)
    assert committed(base) == 10
    App(base).finish()
    check(base, story)
    # In a Spark of its own, steps weigh more than queries.
    weights = json.loads((base / "result.json").read_text())["weights"]
    assert weights["steps"] > 1000 * weights["queries"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_thirty_times(tmp_path: Path) -> None:
    base = tmp_path
    seed = int(os.environ.get("ANABRANCH_SEED", str(random.randrange(10**6))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    story = Story(seed, 200)
    story.write(base)
    for step in sorted(chance.randrange(0, 198) for _ in range(30)):
        kill_at_random(base, chance, max(step, committed(base)))
    App(base).finish()
    check(base, story)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_transforms_between_regions_are_killed_at_every_point_and_at_random(tmp_path: Path) -> None:
    """Spark code of the user's before both regions: the result is what it is without it."""
    base = tmp_path
    seed = int(os.environ.get("ANABRANCH_SEED", str(random.randrange(10**6))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    story = Story(seed, 20)
    story.write(base)
    (base / "transforms").touch()
    kill_after_run_files(base, 2)
    kill_at_random(base, chance, chance.randrange(3, 6))
    kill_at_point(base, "committed", 8)
    kill_at_point(base, "publishing out-second", 10)
    kill_at_random(base, chance, chance.randrange(11, 13))
    kill_at_point(base, "planned", 16)
    kill_at_point(base, "ran", 16)
    assert committed(base) == 15
    App(base).finish()
    check(base, story)
