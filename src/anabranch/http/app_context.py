"""What all routes share: the coordinator, its step feed, and the limits on concurrent calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.port import Coordinator
from anabranch.http.callers import Callers
from anabranch.http.feed import StepFeed
from anabranch.http.routes.metrics import Meter
from anabranch.protocol.status import Status


@dataclass(frozen=True, slots=True)
class AppContext:
    """The parts that routes use.

    ``control`` and ``quick`` calls never wait for a step. ``control`` is kept for what must answer
    whatever else is called: status, health, start and pause; ``shutdowns`` for those that wait.
    All of them, and the watchers, are fewer than the connections that a client may have.
    ``query_seconds`` is the time limit of a query that names none.
    """

    coordinator: Coordinator
    meter: Meter
    feed: StepFeed
    query_seconds: float
    control: Callers = field(default_factory=lambda: Callers("control", 64))
    shutdowns: Callers = field(default_factory=lambda: Callers("shutdowns", 16))
    quick: Callers = field(default_factory=lambda: Callers("at once", 32))
    waiting: Callers = field(default_factory=lambda: Callers("operations", 32))
    queries: Callers = field(default_factory=lambda: Callers("queries", 16))

    async def status(self) -> Status:
        """The coordinator's status, without blocking the event loop."""
        return await self.control.call(self.coordinator.status)
