"""The phases of a rescale: one class each, which holds only the data valid in that phase.

    steady ──▶ interrogating ──▶ moving ──▶ settled ──▶ steady
                                   │ ▲
                                   ▼ │
                                 paused
    cancel: … ──▶ cancelling ──▶ settled          roll back: … ──▶ rolling back ──▶ settled
    another request: … ──▶ interrogating

Each phase has ``plan(view)``, what it wants from the next step; ``after(moves, reports, ours)``,
the phase after a committed step, where ``ours`` says that the step was planned for the current
request; and ``pending``, whether it needs a step even without input. ``moved_counts`` adds up what
steps moved, in any phase.
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
