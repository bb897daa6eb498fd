"""The base class of jobs: how the machine calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from anabranch.coordinator.effects import Effect
    from anabranch.coordinator.events import Event
    from anabranch.coordinator.memory import Memory
    from anabranch.protocol.node import Failure

Request = TypeVar("Request")


@dataclass(slots=True)
class Job(Generic[Request]):
    """Work that spans many events. A job overrides the methods that concern it."""

    #: the operations that it performs
    takes: ClassVar[tuple[type, ...]] = ()
    #: requests that wait, each with the number to answer it by
    queue: list[tuple[int, Request]] = field(default_factory=list)

    def refusal(self, memory: Memory, operation: Request) -> Failure | None:
        """Why a request cannot be performed; None if it can."""
        return None

    def ask(self, memory: Memory, number: int, operation: Request) -> list[Effect]:
        """Accept a request."""
        self.queue.append((number, operation))
        return []

    def handle(self, memory: Memory, event: Event) -> list[Effect]:
        """React to an event; ignore events of other jobs."""
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """The times at which the job must act even if no event arrives."""
        return []

    def withdraw(self) -> tuple[int, ...]:
        """Drop all requests and work; returns their numbers, for the caller to answer."""
        return self.take_queue()

    def take_queue(self) -> tuple[int, ...]:
        """Remove the requests from the queue; returns their numbers."""
        numbers = tuple(number for number, _ in self.queue)
        self.queue.clear()
        return numbers
