"""The base class of jobs: how the machine calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.coordinator.effects import Effect
    from anabranch.coordinator.events import Event
    from anabranch.coordinator.memory import Memory


class Job:
    """Work that spans many events. A job overrides the methods that concern it."""

    __slots__ = ()

    def handle(self, memory: Memory, event: Event, now: float) -> list[Effect]:
        """React to an event; ignore events of other jobs."""
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """The times at which the job must act even if no event arrives."""
        return []

    def withdraw(self) -> tuple[int, ...]:
        """Drop everything at the end of the pipeline; returns the unanswered requests."""
        return ()
