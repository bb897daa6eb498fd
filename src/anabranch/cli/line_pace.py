"""How often a pipeline is worth a line where lines stay: in logs and pipes."""

from __future__ import annotations

from anabranch.protocol.status import ENDED, Status

FASTEST_SECONDS = 1.0
SLOWEST_SECONDS = 60.0
IDLE_SECONDS = 2 * SLOWEST_SECONDS


class LinePace:
    """Says of each look at a pipeline whether to print a line.

    A new phase gets one at once, and so does a source that is paused or started. Progress gets
    lines ever less often while it goes on, down to one a minute; after two minutes without any, the
    next gets one at once. A pipeline in which nothing happens gets none. Nor does its end, which
    has words of its own.
    """

    def __init__(self) -> None:
        self._state: object = None
        self._progress: object = None
        self._at = 0.0
        self._wait = FASTEST_SECONDS

    def is_due(self, status: Status, now: float) -> bool:
        """Whether this status is worth a line at this time."""
        state = (status.phase, [source.source for source in status.sources if source.paused])
        lag = [source.waiting for source in status.sources]
        progress = (status.step, status.published, status.waiting_for, lag)
        if state != self._state:
            self._wait = FASTEST_SECONDS
        elif progress == self._progress or now - self._at < self._wait:
            return False
        elif now - self._at >= IDLE_SECONDS:
            self._wait = FASTEST_SECONDS
        else:
            self._wait = min(2 * self._wait, SLOWEST_SECONDS)
        self._state, self._progress, self._at = state, progress, now
        return status.phase not in ENDED
