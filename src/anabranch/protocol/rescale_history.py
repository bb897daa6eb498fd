"""Finished rescales."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from anabranch.protocol.rescale_requests import TargetRequest

KEPT = 16
"""How many the history keeps."""


class RescaleOutcome(StrEnum):
    """How a rescale ended. ``REOPENED``: it was done at a start, while nothing ran."""

    SETTLED = "settled"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled-back"
    REPLACED = "replaced"
    REOPENED = "reopened"


class MovedTotals(msgspec.Struct, frozen=True):
    """What was handed over so far, in how many steps, and the longest of them.

    ``bytes`` is what the bins held, ``copied_bytes`` what was copied to homes: less if files are
    already there or are read in place, more if they grow during the copy.
    """

    bins: int = 0
    keys: int = 0
    bytes: int = 0
    steps: int = 0
    longest_seconds: float = 0.0
    copied_bytes: int = 0


class FinishedRescale(msgspec.Struct, frozen=True):
    """A finished rescale: its request, its outcome, what it moved."""

    number: int
    request: TargetRequest
    outcome: RescaleOutcome
    moved: MovedTotals
    workers: tuple[int, ...] = ()


def append_finished(
    history: tuple[FinishedRescale, ...], finished: FinishedRescale
) -> tuple[FinishedRescale, ...]:
    """The history with one more rescale, without the oldest."""
    return (*history, finished)[-KEPT:]
