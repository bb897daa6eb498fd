"""Batch sizes: how many rows a step reads to meet the target latency."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ROWS = 10_000
"""Below this, fixed costs dominate a step: fewer rows would not make it faster."""

SLOW_STEPS = 3
"""The limit shrinks only after this many slow steps in a row, to tolerate outliers."""

GROWTH = 1.5


@dataclass(slots=True)
class BatchSize:
    """The row limit of a step, computed from the duration of earlier steps.

    Without a target there is no limit. Steps that are too slow and larger than ``LEAST_ROWS`` set
    the limit by their throughput. It grows while filled steps stay well below the target.

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
        """Adapt to a finished step. ``filled``: more input waited than it could read."""
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
