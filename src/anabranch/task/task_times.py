"""Measures what a task spends its time on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.task.worker_home import WorkerHome

LOOKUP = "lookup"
HANDLING = "handling"
"""The part of a step for the fixed cost of moving bins, independent of their size."""


class TaskTimes:
    """The seconds of a task by activity, as in its report."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """Time the block, even if it raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    @contextmanager
    def operating(self) -> Iterator[None]:
        """Time the work of an operator, with its look-ups apart."""
        before = self.seconds[LOOKUP]
        with self.spent("operator"):
            yield
        self.seconds["operator"] -= self.seconds[LOOKUP] - before

    @contextmanager
    def moving(self, what: str, home: WorkerHome) -> Iterator[None]:
        """Time the use of a home, with fixed costs apart.

        Only the other costs, which depend on how much is moved, shrink the rounds of a rescale.
        """
        before = home.handling_seconds
        with self.spent(what):
            yield
        fixed_cost = home.handling_seconds - before
        if fixed_cost:
            self.seconds[what] -= fixed_cost
            self.seconds[HANDLING] += fixed_cost
