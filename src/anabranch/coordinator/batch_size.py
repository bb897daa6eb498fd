"""How much a step reads: as much as the latency that is asked for allows."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ROWS = 10_000
"""A step below that is mostly its own fixed cost: fewer rows would not make it faster."""

SLOW_STEPS = 3
"""So many steps must be too slow before less is read: one of them may have had bad luck."""

GROWTH = 1.5


@dataclass(slots=True)
class BatchSize:
    """The limit of rows a step, from how long the steps before it took.

    Without a target there is no limit. A limit comes with the first steps that are too slow and
    large enough to be cut, follows their rows a second, and grows while steps that were filled
    are well below the target.

    >>> size = BatchSize(0.5)
    >>> for _ in range(3): size.observe(100_000, 1.0, filled=False)
    >>> size.rows
    50000
    >>> size.observe(50_000, 0.2, filled=True); size.rows
    75000
    """

    target: float | None
    rows: int | None = None
    slow: int = 0

    def observe(self, rows: int, seconds: float, *, filled: bool) -> None:
        """A step of so many rows took so long; ``filled``: more was there than it could read."""
        if self.target is None or not rows or seconds <= 0:
            return
        if seconds > self.target and rows > LEAST_ROWS:
            self.slow += 1
            if self.slow >= SLOW_STEPS:
                self.rows = max(LEAST_ROWS, int(rows * self.target / seconds))
                self.slow = 0
            return
        self.slow = 0
        if self.rows is not None and filled and seconds < 0.8 * self.target:
            fitting = int(rows * 0.9 * self.target / seconds)
            self.rows = max(self.rows, min(fitting, int(self.rows * GROWTH)))
