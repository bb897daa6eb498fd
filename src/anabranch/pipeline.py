"""The handle of a running pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.node.program import Program
from anabranch.node.runner import Runner, StepDone
from anabranch.state.bins import BinSet
from anabranch.state.layout import EXPIRY
from anabranch.state.region_state import OperatorState

IDLE_SECONDS = 0.05
SINK_SECONDS = 0.5


class Phase(StrEnum):
    """What a pipeline is doing."""

    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """A pipeline at one moment: the last committed step, the last published one, and the state."""

    phase: Phase
    step: int
    published: int
    keys: dict[str, int]
    last: StepDone | None
    waiting_for_sinks: bool


class Pipeline:
    """A pipeline that runs in a thread of this process."""

    def __init__(
        self,
        program: Program,
        directory: Path,
        runner: Runner,
        watch: Callable[[StepDone], None] | None,
        cleanup: Callable[[], None],
    ) -> None:
        """Not started yet."""
        self._program = program
        self._directory = directory
        self._runner = runner
        self._watch = watch
        self._cleanup = cleanup
        self._stop = threading.Event()
        # Waited for instead of the thread: a join that Ctrl-C interrupts takes it for ended.
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._phase = Phase.RUNNING
        self._last: StepDone | None = None
        self._waiting = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-steps", daemon=True)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the pipeline has ended, or for so many seconds; raise what made it fail.

        A pipeline ends when all its sources have ended and everything is published, when it is
        shut down, or when a step fails.
        """
        self._over.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return self.status()

    def shutdown(self) -> Status:
        """Finish the step under way, publish what is committed, and end.

        Running the same dataflow in the same directory continues after the last step.
        """
        with self._lock:
            if self._phase is Phase.RUNNING:
                self._phase = Phase.STOPPING
        self._stop.set()
        return self.wait()

    def status(self) -> Status:
        """Where the pipeline stands."""
        with self._lock:
            states = self._runner.states
            keys = {state.operator: sum(state.live) for state in states}
            return Status(
                self._phase,
                self._runner.step,
                self._runner.published,
                keys,
                self._last,
                self._waiting,
            )

    def state(self, operator: str) -> pa.Table:
        """An operator's state at the last committed step: key columns, then state columns.

        Sub-keys come after the keys; where state expires, the last column says when.
        """
        with self._lock:
            found = {state.operator: state for state in self._runner.states}
            now = self._runner.clock_ns
        if operator not in found:
            known = ", ".join(sorted(found)) or "none"
            raise KeyError(f"no stateful operator {operator!r}; there are: {known}")
        kept = found[operator]
        bins = self._program.bins
        state = OperatorState(
            operator,
            self._program.layouts[operator],
            kept.runs,
            self._directory,
            bins,
            BinSet.of(range(bins)),
            kept.live,
        )
        layout = state.layout
        names = [*layout.keys.names, *layout.subkeys.names, *layout.values.names]
        names += [EXPIRY] if layout.expires else []
        return state.scan(now).remove_column(0).rename_columns(names)

    def start(self) -> None:
        """Begin to run steps."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._steps()
            self._runner.close()
            self._ended(Phase.STOPPED if self._stop.is_set() else Phase.COMPLETED)
        except BaseException as error:
            self._failure = error
            self._runner.give_up()
            self._ended(Phase.FAILED)
            if not isinstance(error, AnabranchError):
                raise
        finally:
            self._cleanup()
            self._over.set()

    def _ended(self, phase: Phase) -> None:
        with self._lock:
            self._phase = phase

    def _steps(self) -> None:
        while not self._stop.is_set():
            self._waiting = not self._runner.wait_for_sinks(SINK_SECONDS)
            if self._waiting:
                continue
            plan = self._runner.next_plan()
            if plan is None:
                if self._runner.ended():
                    return
                self._stop.wait(IDLE_SECONDS)
                continue
            done = self._runner.run(plan)
            with self._lock:
                self._last = done
            if self._watch is not None:
                self._watch(done)


def wall_clock() -> float:
    """Seconds since the epoch."""
    return time.time()
