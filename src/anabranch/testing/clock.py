"""A clock that moves only when it is told to."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.coordinator.events import Moment


@dataclass(slots=True)
class ManualClock:
    """Seconds that never go back, and a wall's clock beside them, which may jump.

    >>> clock = ManualClock(wall_ns=1_000_000_000)
    >>> clock.pass_time(2.5)
    >>> clock.jump(-1.0)
    >>> clock.moment()
    Moment(seconds=2.5, clock_ns=2500000000)
    """

    seconds: float = 0.0
    wall_ns: int = 1_700_000_000_000_000_000

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back, and not by {-seconds:g} seconds")
        self.seconds += seconds
        self.wall_ns += round(seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Set the wall's clock forward or back. No time passes."""
        self.wall_ns += round(seconds * 1e9)

    def moment(self) -> Moment:
        """Now."""
        return Moment(self.seconds, self.wall_ns)
