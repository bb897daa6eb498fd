"""What a job is to the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.coordinator.effects import Effect
    from anabranch.coordinator.events import Event
    from anabranch.coordinator.memory import Memory


class Job(Protocol):
    """Work that goes on over many events."""

    def handle(self, memory: Memory, event: Event, now: float) -> list[Effect]:
        """React to an event; events that do not concern the job change nothing."""
        ...

    def wakes_at(self, memory: Memory) -> list[float]:
        """When something is due with time alone."""
        ...

    def withdraw(self) -> tuple[int, ...]:
        """The pipeline is over: drop everything. Gives the requests that nobody has answered."""
        ...
