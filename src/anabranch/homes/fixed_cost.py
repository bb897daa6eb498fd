"""The fixed cost of a run: time that does not depend on how much of it is copied."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_SECONDS = 0.002
"""An upper bound for the fixed cost of a run."""


@dataclass(slots=True)
class FixedCost:
    """The time spent on runs that does not depend on how much of them is copied.

    Checking what a home has of a run, opening the run in the store and creating a file take as long
    for one bin as for ten. Copying fewer bins in a step saves none of that, so it is kept apart
    from the cost of copying. A copy's fixed cost is estimated as the time of the quickest copy,
    with an upper bound in case the disk makes all of them slow.
    """

    checks: float = 0.0
    copies: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def check(self) -> Iterator[None]:
        """Measure a look at what the home has of a run."""
        started = time.perf_counter()
        yield
        self.checks += min(time.perf_counter() - started, MOST_SECONDS)

    @contextlib.contextmanager
    def copy(self) -> Iterator[None]:
        """Measure a copy of bins of a run."""
        started = time.perf_counter()
        yield
        self.copies.append(time.perf_counter() - started)

    @property
    def seconds(self) -> float:
        """The sum of all fixed costs.

        >>> round(FixedCost(0.5, [0.001, 0.004, 0.009]).seconds, 6)
        0.503
        """
        return self.checks + len(self.copies) * min([MOST_SECONDS, *self.copies])
