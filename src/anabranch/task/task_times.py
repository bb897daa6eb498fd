"""How long a task spends on what."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.task.worker_home import WorkerHome

HANDLING = "handling"
"""What moving costs whatever is moved, as a part of a step."""


class TaskTimes:
    """The seconds of a task by what they were spent on, as its report has them."""

    def __init__(self) -> None:
        """Nothing was spent yet."""
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """Time it, also where it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    @contextmanager
    def moving(self, what: str, home: WorkerHome) -> Iterator[None]:
        """Time what a worker does with its home: what depends on how much is moved, and the rest.

        Rounds of a rescale are made smaller for the first only.
        """
        before = home.handling_seconds
        with self.spent(what):
            yield
        fixed_cost = home.handling_seconds - before
        if fixed_cost:
            self.seconds[what] -= fixed_cost
            self.seconds[HANDLING] += fixed_cost
