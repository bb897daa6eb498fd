"""The phases of a rescale: one class each, with the data that is valid in it and nothing else.

    steady ──▶ interrogating ──▶ moving ──▶ settled ──▶ steady
                                   │ ▲
                                   ▼ │
                                 paused
    cancel: … ──▶ cancelling ──▶ settled          roll back: … ──▶ rolling back ──▶ settled
    another request: … ──▶ interrogating

Each phase has ``plan(view)``, what it wants of the next step; ``after(moves, reports, ours)``, the
phase that follows a committed step, where ``ours`` says that the step was planned for what is
wanted now; and ``pending``, whether it justifies a step without input. What a step has moved is
added by ``counting``, whatever phase follows it.
"""

from __future__ import annotations

from typing import TypeAlias

from anabranch.rescale.phases.cancelling import Cancelling
from anabranch.rescale.phases.interrogating import Interrogating
from anabranch.rescale.phases.moving import Moving
from anabranch.rescale.phases.paused import Paused
from anabranch.rescale.phases.rolling_back import RollingBack
from anabranch.rescale.phases.settled import Settled
from anabranch.rescale.phases.steady import Steady

Phase: TypeAlias = Steady | Interrogating | Moving | RollingBack | Cancelling | Paused | Settled

__all__ = [
    "Cancelling",
    "Interrogating",
    "Moving",
    "Paused",
    "Phase",
    "RollingBack",
    "Settled",
    "Steady",
]
