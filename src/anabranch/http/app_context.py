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
    """The parts that routes use. ``quick`` calls never wait for a step, ``waiting`` ones may.

    ``query_seconds`` is the time limit of a query that names none.
    """

    coordinator: Coordinator
    meter: Meter
    feed: StepFeed
    query_seconds: float
    quick: Callers = field(default_factory=lambda: Callers("at once", 64))
    waiting: Callers = field(default_factory=lambda: Callers("operations", 32))
    queries: Callers = field(default_factory=lambda: Callers("queries", 16))

    async def status(self) -> Status:
        """The coordinator's status, without blocking the event loop."""
        return await self.quick.call(self.coordinator.status)
