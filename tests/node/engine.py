"""A pipeline without Spark: coordinator, journal, node and tasks are real, rows move in memory."""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.coordinator.driver import Driver
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.machine import Machine
from anabranch.coordinator.settings import Settings
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.node.core import NodeCore
from anabranch.node.threads import ThreadedNode
from anabranch.pipeline import Pipeline
from anabranch.protocol.status import Status
from anabranch.records.plan import Plan
from anabranch.store.access import open_directory
from anabranch.task.program import Program
from anabranch.testing.plane.memory_plane import MemoryPlane

WAIT = 60.0
AHEAD = 2
"""How many steps a paced pipeline may be ahead of what its test has seen."""

_clock = itertools.count(10**12, 10**9)


class Killed(Exception):
    """The process ends here."""


class Engine:
    """A pipeline in a directory, from start to end or death.

    When ``paced``, it waits for its test: a rescale is not over, nor the input at its end, before
    ``until`` has looked.
    """

    def __init__(
        self,
        program: Program,
        directory: Path,
        *,
        plane: Any = None,
        code: str = "code",
        settings: Settings | None = None,
        reached: Callable[[str, int], None] = lambda point, step: None,
        clock_ns: Callable[[], int] = lambda: next(_clock),
        watch: Callable[[StepDone], None] | None = None,
        plane_before: Callable[[Plan], None] = lambda plan: None,
        paced: bool = False,
        **options: Any,
    ) -> None:
        self.dead = threading.Event()
        self._killer: BaseException | None = None
        self._reached = reached
        self.done: list[StepDone] = []
        self._started = False
        self._watch = watch
        self._looked = threading.Condition()
        self._allowed = AHEAD if paced else sys.maxsize
        open_directory(directory)
        chosen = settings or Settings()
        core = NodeCore(
            program,
            directory,
            plane or MemoryPlane(program, directory, before=plane_before),
            code,
            clock=lambda: clock_ns() / 1e9,
            boot=secrets.token_hex(4),
            reached=self._point,
            grace_seconds=chosen.grace_seconds,
        )
        self.node = ThreadedNode(core)
        leading = Leadership(FileDirectory(directory / "journal"))
        machine = Machine(chosen, directory=str(directory), validate=True, **options)
        self.driver = Driver(machine, leading, self.node, self._seen, self._point, clock_ns)
        self.pipeline = Pipeline(directory, self.driver, self.node, chosen)

    def start(self) -> Engine:
        self._started = True
        self.driver.start()
        return self

    def until(self, done: Callable[[Any], object]) -> Status:
        """Look at the status, again and again, until it is what the test waits for."""
        while True:
            status = self.pipeline.status()
            if self._allowed < sys.maxsize:
                self._allow(status.step + AHEAD)
            if done(status):
                return status
            self.pipeline.wait(0.005)

    def finish(self) -> Status:
        """Wait for the end; nothing holds the pipeline up any more."""
        self._allow(sys.maxsize)
        return self.pipeline.wait(200)

    def abandon(self) -> None:
        """Let the coordinator end as if it were killed."""
        self._allow(sys.maxsize)
        self.driver.abandon()

    def shutdown(self) -> Status:
        """Drain, and end."""
        self._allow(sys.maxsize)
        return self.pipeline.shutdown()

    def _allow(self, step: int) -> None:
        with self._looked:
            self._allowed = step
            self._looked.notify_all()

    def run(self) -> list[StepDone]:
        """Run until the input ends or something fails; leaves no thread behind."""
        if not self._started:
            self.start()
        try:
            while not self.driver.wait(0.01):
                if self.dead.is_set():
                    self.driver.abandon()
        except BaseException:
            self.driver.abandon()
            raise
        if self._killer is not None:
            raise self._killer
        failure = self.driver.failure()
        if failure is not None:
            raise failure
        return self.done

    def _seen(self, done: StepDone) -> None:
        self.done.append(done)
        if self._watch is not None:
            self._watch(done)

    def _point(self, point: str, step: int) -> None:
        if self.dead.is_set():
            raise Killed(point)
        if point == "ran":
            with self._looked:
                self._looked.wait_for(lambda: step <= self._allowed, WAIT)
        try:
            self._reached(point, step)
        except BaseException as error:
            self._killer = error
            self.dead.set()
            raise


def files_of(directory: Path) -> list[Path]:
    """Everything in a directory, but for who has led there."""
    return sorted(path for path in directory.rglob("*") if "leader" not in path.parts)
