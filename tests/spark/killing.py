"""A pipeline under load in processes of its own, which tests kill, stop and signal."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from anabranch.errors import CoordinatorUnreachable
from anabranch.http.address import read_address
from anabranch.http.client import Client
from anabranch.node.address import NodeAddress
from anabranch.node.address import read_node_address as read_node
from anabranch.protocol.status import Phase, Status
from anabranch.task.state_reader import read_snapshot, read_table
from tests.spark.killable import SHORT_LIVED
from tests.spark.test_kill import committed, rows_of

FLOW = Path(__file__).with_name("process_flow.py")
MODULUS = 2**61 - 1
DEADLINE = 240.0
BACKLOG = 12
CONF = tuple(f"{key}={value}" for key, value in SHORT_LIVED.items())

T = TypeVar("T")


def until(wanted: Callable[[], T | None], what: str, seconds: float = DEADLINE) -> T:
    """Wait until something is true, and give it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = wanted()
        if found:
            return found
        time.sleep(0.03)
    raise AssertionError(f"never happened: {what}")


class Feed:
    """Input that goes on coming, and what must come out of it, computed in plain Python.

    A file is a step. A few more files lie there than were committed.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self._base = base
        self._chance = random.Random(seed)
        self.files: list[list[dict[str, Any]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        (base / "in").mkdir(parents=True)
        self._thread.start()

    def stop(self) -> None:
        """Nothing more comes."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            while len(self.files) < committed(self._base) + BACKLOG:
                self._write()

    def _write(self) -> None:
        chance, number = self._chance, len(self.files) + 1
        rows = [
            {
                "file": number,
                "place": place,
                "name": f"n{chance.randrange(23)}",
                "other": chance.randrange(11),
                "value": chance.randrange(1000),
            }
            for place in range(chance.randrange(1, 40))
        ]
        self.files.append(rows)
        aside = self._base / "in" / f".{number:05d}"
        aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(aside, ns=(number * 10**9, number * 10**9))
        aside.rename(aside.with_name(f"{number:05d}.json"))

    def expected(self, steps: int) -> tuple[list[Any], list[Any], dict[str, int], dict[int, Any]]:
        """Both sinks' rows with their steps, and both states, after so many steps."""
        mixed: dict[str, int] = {}
        counted: dict[int, tuple[int, int]] = {}
        first: list[Any] = []
        second: list[Any] = []
        for step, rows in enumerate(self.files[:steps], start=1):
            for row in rows:
                new = (mixed.get(row["name"], 7) * 31 + row["value"] + 1) % MODULUS
                mixed[row["name"]] = new
                first.append((step, row["other"], row["value"], new))
                if row["value"] % 7 == 3:
                    continue
                count, sofar = counted.get(row["other"], (0, 3))
                counted[row["other"]] = (count + 1, (sofar * 131 + new) % MODULUS)
                second.append((step, row["other"], *counted[row["other"]]))
        return first, second, mixed, counted


class Coordinator:
    """``anabranch run``, as a process, with what it prints."""

    def __init__(self, base: Path, number: int, *options: str) -> None:
        self._log = base / f"run-{number}.log"
        command = [sys.executable, "-m", "anabranch.cli.app", "run", f"{base / FLOW.name}:flow"]
        command += ["--directory", str(base / "state"), "--master", "local[2]"]
        command += [part for setting in CONF for part in ("--conf", setting)]
        self.began = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        return self.process.wait(DEADLINE)

    def printed(self) -> str:
        return self._log.read_text(errors="replace")


class Site:
    """A directory with a pipeline under load, and whoever runs it."""

    def __init__(self, base: Path, seed: int) -> None:
        base.mkdir(exist_ok=True)
        shutil.copy(FLOW, base / FLOW.name)
        self.base = base
        self.state = base / "state"
        self.feed = Feed(base, seed)
        self.runs: list[Coordinator] = []
        self.repeated: set[int] = set()
        self.times: dict[str, list[float]] = {}
        self._nodes: set[int] = set()

    @property
    def coordinator(self) -> Coordinator:
        return self.runs[-1]

    def run(self, *options: str) -> Coordinator:
        self.runs.append(Coordinator(self.base, len(self.runs) + 1, *options))
        return self.coordinator

    def status(self) -> Status | None:
        """What the newest coordinator says; None while it says nothing."""
        with contextlib.suppress(CoordinatorUnreachable):
            if read_address(self.state).pid == self.coordinator.pid:
                return self.client().status()
        return None

    def client(self) -> Client:
        return Client.of_directory(self.state)

    def running(self, step: int = 0) -> Status:
        """Wait until the newest coordinator runs steps and has committed one."""

        def found() -> Status | None:
            assert self.coordinator.process.poll() is None, self.coordinator.printed()
            status = self.status()
            goes = status is not None and status.phase is Phase.RUNNING and status.step >= step
            return status if goes and status is not None and status.node is not None else None

        return until(found, f"step {step}: {self.coordinator.printed()[-2000:]}")

    def more(self, steps: int = 3) -> Status:
        """Wait for some more steps."""
        return self.running(committed(self.base) + steps)

    def took(self, what: str, since: float) -> None:
        """Note how long something has taken."""
        seconds = time.monotonic() - since
        self.times.setdefault(what, []).append(seconds)
        print(f"{what} after {seconds:.2f} s", flush=True)

    def took_to_go_on(self, what: str, since: float) -> None:
        """Note how long a new coordinator has taken, as a process and from when on it leads."""
        self.took(f"{what}, going on", since)
        leaders = (self.state / "journal" / "leader").glob("*[0-9]")
        led = max(path.stat().st_mtime for path in leaders)
        self.took(f"{what}, going on since it leads", time.monotonic() - (time.time() - led))

    def node(self) -> NodeAddress:
        address = until(lambda: read_node(self.state), "a node")
        self._nodes.add(address.pid)
        return address

    def kill_node(self, *, tree: bool = False) -> None:
        """SIGKILL to the node's process; its JVM ends by itself, or is killed too."""
        step = committed(self.base)
        self.repeated |= {step + 1, step + 2, step + 3}
        process = psutil.Process(self.node().pid)
        children = process.children(recursive=True) if tree else []
        for each in [process, *children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        until(lambda: not psutil.pid_exists(process.pid) or _is_dead(process), "the node's end")

    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """No step ends from now on; gives the step that is stuck once it is."""
        try:
            yield self.hold()
        finally:
            self.let_go()

    def hold(self) -> int:
        """Let no step end; gives the one that is stuck once it is."""
        (self.base / "hold").touch()
        (self.base / "waiting").unlink(missing_ok=True)
        return until(self._stuck, "a stuck step")

    def let_go(self) -> None:
        """Let steps end."""
        (self.base / "hold").unlink()

    def _stuck(self) -> int | None:
        """The step that waits. One that began before it was told to wait does not."""
        path, step = self.base / "waiting", committed(self.base) + 1
        return step if path.exists() and path.read_text() == str(step) else None

    def executed(self) -> Counter[int]:
        """How often each step was worked on."""
        path = self.base / "executed"
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()

    def check(self) -> int:
        """Compare everything that is published with plain Python; gives the last step of it."""
        status = self.running()
        first, second, *_ = self.feed.expected(status.published)
        assert sorted(self.first(status.published)) == sorted(first)
        found = [row for row in rows_of(self.base, "second") if row[0] <= status.published]
        assert sorted(found) == sorted(second)
        often = {s: n for s, n in self.executed().items() if n > 1 and s not in self.repeated}
        assert not often, f"steps that were executed more than once: {often}"
        return status.published

    def first(self, steps: int) -> list[Any]:
        """The rows of the first sink, without the version."""
        return [row[:-1] for row in rows_of(self.base, "first") if row[0] <= steps]

    def versions(self) -> dict[int, set[int]]:
        """Which versions of the code have worked on each step."""
        found: dict[int, set[int]] = {}
        for step, *_, version in rows_of(self.base, "first"):
            found.setdefault(step, set()).add(version)
        return found

    def kept(self, operator: str) -> set[tuple[Any, ...]]:
        """An operator's state at the last committed step, as it lies on disk."""
        table = read_table(read_snapshot(self.state).view(operator), self.state)
        return {tuple(row.values()) for row in table.to_pylist()}

    def end(self) -> None:
        """Leave no process behind."""
        self.feed.stop()
        for run in self.runs:
            run.kill()
        address = read_node(self.state)
        for pid in self._nodes | ({address.pid} if address else set()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if str(self.state) in process.cmdline():
                    for each in [process, *process.children(recursive=True)]:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            each.kill()


def _is_dead(process: psutil.Process) -> bool:
    """Whether it is gone but for being waited for by whoever started it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
