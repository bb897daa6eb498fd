"""The story of a machine: what happened, in which phase, and what it led to; as data.

Each entry names the entry that caused it: that whose effect has this event for its outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anabranch.coordinator import effects as asked
from anabranch.coordinator import events as happened
from anabranch.coordinator.effects import Effect, Give
from anabranch.coordinator.events import EffectFailed, Event
from anabranch.protocol.node import StepOrder

LENGTH = 200

_OUTCOMES: dict[type, type] = {
    happened.Led: asked.Lead,
    happened.JournalRead: asked.ReadJournal,
    happened.IdentityWritten: asked.WriteIdentity,
    happened.PlanWritten: asked.WritePlan,
    happened.CommitWritten: asked.WriteCommit,
    happened.CheckpointWritten: asked.WriteCheckpoint,
    happened.RepairWritten: asked.WriteRepair,
    happened.BranchMade: asked.MakeBranch,
    happened.StepRead: asked.ReadStep,
    happened.JournalTrimmed: asked.Trim,
    happened.InputTaken: asked.Take,
    happened.ResultFetched: asked.Fetch,
}
"""Which effect an event is the outcome of."""


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One event that the machine has handled. ``cause`` is the number of another entry."""

    number: int
    seconds: float
    event: str
    cause: int | None
    before: str
    after: str
    effects: tuple[str, ...]

    def __str__(self) -> str:
        """The entry on one line."""
        cause = "" if self.cause is None else f" (of {self.cause})"
        named = ", ".join(self.effects)
        return (
            f"{self.number} {self.seconds:.3f} {self.event}{cause}: "
            f"{self.before} -> {self.after} [{named}]"
        )


@dataclass(slots=True)
class EventLog:
    """The last events and what they led to."""

    entries: deque[EventEntry] = field(default_factory=lambda: deque(maxlen=LENGTH))
    _next: int = 1
    _asked_in: dict[type, int] = field(default_factory=dict)

    def add(
        self, seconds: float, event: Event, before: str, after: str, effects: Sequence[Effect]
    ) -> None:
        """Note an event, and what was asked for because of it."""
        of = type(event.effect) if isinstance(event, EffectFailed) else _OUTCOMES.get(type(event))
        cause = None if of is None else self._asked_in.get(of)
        number, self._next = self._next, self._next + 1
        named = tuple(map(_named, effects))
        name = type(event).__name__
        self.entries.append(EventEntry(number, seconds, name, cause, before, after, named))
        self._asked_in.update((type(effect), number) for effect in effects)

    def led_to(self, number: int) -> list[EventEntry]:
        """The entry with its causes, oldest first, as far as they are remembered."""
        known = {entry.number: entry for entry in self.entries}
        found: list[EventEntry] = []
        entry = known.get(number)
        while entry is not None:
            found.insert(0, entry)
            entry = None if entry.cause is None else known.get(entry.cause)
        return found


def log_text(entries: Iterable[EventEntry]) -> str:
    """Entries as lines."""
    return "\n".join(map(str, entries))


def _named(effect: Effect) -> str:
    if isinstance(effect, Give):
        order = effect.order
        step = order.plan.step if isinstance(order, StepOrder) else getattr(order, "step", "")
        return f"{type(order).__name__} {step} to {effect.to}".replace("  ", " ")
    return type(effect).__name__
