"""What users ask of a rescale, drawn from a seed."""

from __future__ import annotations

from random import Random

from anabranch.coordinator.memory import Memory
from anabranch.protocol.rescale_requests import (
    Balance,
    CancelRescale,
    PauseRescale,
    Rebalance,
    RescaleRequest,
    ResumeRescale,
    Scale,
)
from anabranch.records.shares import members
from anabranch.rescale.phases import Settled, Steady
from anabranch.rescale.rounds import MovePolicy, RescaleSettings

MOST = 5
"""Up to so many workers are asked for; some scenarios have fewer keys."""


def drawn_request(random: Random, memory: Memory) -> RescaleRequest:
    """Anything that somebody may ask for now; most of it makes sense."""
    under_way = not isinstance(memory.rescale.phase, Steady | Settled)
    if under_way and random.random() < 0.6:
        changes = (CancelRescale(), CancelRescale(roll_back=True), PauseRescale(), ResumeRescale())
        return random.choice(changes)
    return _drawn_target(random, memory)


def _drawn_target(random: Random, memory: Memory) -> RescaleRequest:
    commit = memory.journal.commit
    placement = () if commit is None else commit.placement
    workers = members(placement) or (0,)
    by = random.choice(tuple(Balance))
    match random.randrange(8):
        case 0:
            return Scale(1, by=by)
        case 1 if len(workers) > 1:
            return Scale(remove=(random.choice(workers),), by=by)
        case 2 if placement:
            return Scale(regions=((random.choice(placement).region, random.randint(1, MOST)),))
        case 3:
            return Rebalance(by=by)
        case _:
            return Scale(random.randint(1, MOST), by=by)


def drawn_rescaling(random: Random) -> RescaleSettings:
    """How bins are moved: all ways, with and without waiting for answers and copies."""
    return RescaleSettings(
        policy=random.choice(tuple(MovePolicy)),
        prefetch=random.random() < 0.3,
        answer_steps=random.choice((0, 1, 2)),
        prefetch_steps=random.choice((0, 1)),
    )
