"""What one committed step did for a rescale, for observers and metrics."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.protocol.rescale_history import FinishedRescale, RescaleOutcome
from anabranch.rescale.step_moves import StepMoves


class StepMoved(msgspec.Struct, frozen=True):
    """What a step handed over, and the outcomes of rescales that ended with its commit.

    A step that hands over bins is a round. ``released`` are the workers that got ``Shutdown``.
    """

    bins: int = 0
    keys: int = 0
    bytes: int = 0
    ended: tuple[RescaleOutcome, ...] = ()
    released: tuple[int, ...] = ()


def moved_in(
    moves: StepMoves | None, before: Sequence[FinishedRescale], after: Sequence[FinishedRescale]
) -> StepMoved | None:
    """What a step did, from the histories of the commit before it and of its own."""
    known = {each.number for each in before}
    ended = tuple(each.outcome for each in after if each.number not in known)
    if moves is None:
        return StepMoved(ended=ended) if ended else None
    return StepMoved(
        len(moves.collect),
        sum(move.keys for move in moves.collect),
        sum(move.bytes for move in moves.collect),
        ended,
        moves.shutdown,
    )
