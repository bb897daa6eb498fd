"""Rescales that are over."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from anabranch.protocol.rescale_requests import TargetRequest

KEPT = 16
"""How many are remembered."""


class RescaleOutcome(StrEnum):
    """How a rescale ended. One that was reopened was done while nothing ran."""

    SETTLED = "settled"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled-back"
    REPLACED = "replaced"
    REOPENED = "reopened"


class MovedTotals(msgspec.Struct, frozen=True):
    """What was handed over so far, in how many steps, and the longest of these.

    ``bytes`` is what the bins held; ``copied_bytes`` what was copied to homes, which is less where
    files are there already, or read in place, and more where they grow while they are copied.
    """

    bins: int = 0
    keys: int = 0
    bytes: int = 0
    steps: int = 0
    longest_seconds: float = 0.0
    copied_bytes: int = 0


class FinishedRescale(msgspec.Struct, frozen=True):
    """A rescale that is over: what was asked, how it ended, what it moved."""

    number: int
    request: TargetRequest
    outcome: RescaleOutcome
    moved: MovedTotals
    workers: tuple[int, ...] = ()


def remembered(
    history: tuple[FinishedRescale, ...], finished: FinishedRescale
) -> tuple[FinishedRescale, ...]:
    """The history with one more; the oldest are forgotten."""
    return (*history, finished)[-KEPT:]
