"""Triggers: why and when a step is taken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import Offer


class Trigger(StrEnum):
    """Why a step or a checkpoint was taken."""

    RECORDS = "records"
    TIMER = "timer"
    TICK = "tick"
    CHECKPOINT = "checkpoint"
    REPLAY = "replay"
    WORK = "work"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class PendingInput:
    """What waits for a step, and since when.

    ``first_at`` is when the first waiting row was seen, ``last_step`` when the last step was taken.
    ``work``: there is work that needs no input.
    """

    offer: Offer | None
    first_at: float | None
    last_step: float
    work: bool = False


def step_trigger(waiting: PendingInput, settings: Settings, now: float) -> Trigger | None:
    """The reason to take a step now, if any.

    >>> offer = Offer(step=1, rows=5, bytes=0, by_source={}, full=False, ended=False)
    >>> settings = Settings(min_rows=10, max_delay_seconds=2.0)
    >>> step_trigger(PendingInput(offer, 7.0, 0.0), settings, 8.0)
    >>> step_trigger(PendingInput(offer, 7.0, 0.0), settings, 9.0)
    <Trigger.TIMER: 'timer'>
    """
    offer = waiting.offer
    if offer is not None and offer.rows:
        if offer.rows >= settings.min_rows or offer.full or offer.ended:
            return Trigger.RECORDS
        if waiting.first_at is not None and now >= waiting.first_at + settings.max_delay_seconds:
            return Trigger.TIMER
    if waiting.work:
        return Trigger.WORK
    if settings.tick_seconds is not None and now >= waiting.last_step + settings.tick_seconds:
        return Trigger.TICK
    return None


def next_trigger_at(waiting: PendingInput, settings: Settings) -> float | None:
    """When a trigger may fire without an event."""
    times = []
    offer = waiting.offer
    if waiting.first_at is not None and offer is not None and offer.rows:
        times.append(waiting.first_at + settings.max_delay_seconds)
    if settings.tick_seconds is not None:
        times.append(waiting.last_step + settings.tick_seconds)
    return min(times, default=None)
