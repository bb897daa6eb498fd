"""Notes when a pipeline of ours reaches which point of which step."""

from __future__ import annotations

import time
from collections.abc import Callable

import anabranch as ab
from benchmarks.measure import Batch

PLANNED, RAN, COMMITTED, PUBLISHED = "planned", "ran", "committed", "published"


class Recorder:
    """Is given to ``anabranch.run.start_pipeline`` as ``watch`` and ``reached``.

    A step's time is that from the end of the step before to its own end, so that nothing between
    two steps is left out; before the first one, the start of the pipeline stands for it.
    """

    def __init__(self, on_step: Callable[[ab.StepDone], None] | None = None) -> None:
        """Tell ``on_step`` of every step as well; the time it takes counts for no step."""
        self._on_step = on_step
        self._points: dict[tuple[str, int], float] = {}
        self._begun: dict[int, float] = {1: time.perf_counter()}
        self._ended: dict[int, float] = {}
        self._wall: dict[int, tuple[float, float]] = {}
        self._began_at = time.time()
        self.steps: list[ab.StepDone] = []

    def reached(self, point: str, step: int) -> None:
        """A point of a step."""
        self._points[point, step] = time.perf_counter()

    def watch(self, done: ab.StepDone) -> None:
        """The end of a step."""
        self._ended[done.step] = time.perf_counter()
        self._wall[done.step] = (self._began_at, time.time())
        self.steps.append(done)
        if self._on_step is not None:
            self._on_step(done)
        self._began_at = time.time()
        self._begun[done.step + 1] = time.perf_counter()

    def batches(self) -> tuple[Batch, ...]:
        """The steps, with the parts that the step reports and those seen from here."""
        return tuple(self._batch(done) for done in self.steps)

    def point(self, point: str, step: int) -> float:
        """When a step reached a point, on the clock of ``time.perf_counter``."""
        return self._points[point, step]

    def begun(self, step: int) -> float:
        """When a step began, on the clock of ``time.perf_counter``."""
        return self._begun[step]

    def window(self, step: int) -> tuple[float, float]:
        """The seconds since the epoch at which a step began and ended."""
        return self._wall[step]

    def _batch(self, done: ab.StepDone) -> Batch:
        step = done.step
        begun, ended = self._begun[step], self._ended[step]
        planned, ran, committed = (self._points[p, step] for p in (PLANNED, RAN, COMMITTED))
        seen = {
            "plan": planned - begun,
            "run": ran - planned,
            "commit": committed - ran,
            "after": ended - committed,
        }
        published = self._points.get((PUBLISHED, step))
        if published is not None:
            seen["until published"] = published - begun
        return Batch(done.rows, ended - begun, {**done.parts, **seen})
