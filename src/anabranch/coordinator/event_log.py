"""The machine's log as data: each event, its phase, and the effects it led to.

Each entry names its cause: the entry whose effect had this event as its outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.coordinator import effects as effect_kinds
from anabranch.coordinator import events as event_kinds
from anabranch.coordinator.effects import Effect, Give
from anabranch.coordinator.events import EffectFailed, Event
from anabranch.protocol.node import StepOrder

LENGTH = 200

_OUTCOMES: dict[type, type] = {
    event_kinds.Led: effect_kinds.Lead,
    event_kinds.JournalRead: effect_kinds.ReadJournal,
    event_kinds.IdentityWritten: effect_kinds.WriteIdentity,
    event_kinds.PlanWritten: effect_kinds.WritePlan,
    event_kinds.CommitWritten: effect_kinds.WriteCommit,
    event_kinds.CheckpointWritten: effect_kinds.WriteCheckpoint,
    event_kinds.RepairWritten: effect_kinds.WriteRepair,
    event_kinds.BranchMade: effect_kinds.MakeBranch,
    event_kinds.StepRead: effect_kinds.ReadStep,
    event_kinds.JournalTrimmed: effect_kinds.Trim,
    event_kinds.InputTaken: effect_kinds.Take,
    event_kinds.ResultFetched: effect_kinds.Fetch,
}
"""The effect whose outcome an event is."""


class EventEntry(msgspec.Struct, frozen=True):
    """One handled event. ``cause`` is the number of another entry."""

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
    """The last handled events."""

    entries: deque[EventEntry] = field(default_factory=lambda: deque(maxlen=LENGTH))
    _next: int = 1
    _asked_in: dict[type, int] = field(default_factory=dict)

    def add(
        self, seconds: float, event: Event, before: str, after: str, effects: Sequence[Effect]
    ) -> None:
        """Append an event with its effects."""
        of = type(event.effect) if isinstance(event, EffectFailed) else _OUTCOMES.get(type(event))
        cause = None if of is None else self._asked_in.get(of)
        number, self._next = self._next, self._next + 1
        named = tuple(map(_named, effects))
        name = type(event).__name__
        self.entries.append(EventEntry(number, seconds, name, cause, before, after, named))
        self._asked_in.update((type(effect), number) for effect in effects)


def log_text(entries: Iterable[EventEntry]) -> str:
    """Format entries, one per line."""
    return "\n".join(map(str, entries))


def _named(effect: Effect) -> str:
    if isinstance(effect, Give):
        order = effect.order
        step = order.plan.step if isinstance(order, StepOrder) else getattr(order, "step", "")
        return f"{type(order).__name__} {step} to {effect.to}".replace("  ", " ")
    return type(effect).__name__
