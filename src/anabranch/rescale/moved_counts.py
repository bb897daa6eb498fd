"""What steps moved, one by one and in total: a step counts for the rescale it was planned for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from anabranch.protocol.rescale_history import FinishedRescale, MovedTotals, RescaleOutcome
from anabranch.rescale.migration import Reports
from anabranch.rescale.phases import (
    Cancelling,
    Interrogating,
    Moving,
    Paused,
    Phase,
    RollingBack,
    Settled,
    Steady,
)
from anabranch.rescale.step_moves import StepMoves


def count_moved(phase: Phase, moves: StepMoves, reports: Reports) -> Phase:
    """The phase with the moves of a step of its rescale added.

    Steps planned before the rescale was cancelled or rolled back count too: their collected bins
    are still handed over.
    """
    match phase:
        case Settled() | Cancelling():
            return replace(phase, moved=_add_step(phase.moved, moves, reports))
        case Moving() | RollingBack():
            moved = _add_step(phase.migration.moved, moves, reports)
            return replace(phase, migration=replace(phase.migration, moved=moved))
        case Paused():
            return replace(phase, inner=count_moved(phase.inner, moves, reports))
        case Steady() | Interrogating():
            return phase


def moved_of(phase: Phase) -> MovedTotals:
    """What the rescale of a phase has moved so far."""
    match phase:
        case Paused():
            return moved_of(phase.inner)
        case Moving() | RollingBack():
            return phase.migration.moved
        case Settled() | Cancelling():
            return phase.moved
        case Steady() | Interrogating():
            return MovedTotals()


def credit_history(
    history: tuple[FinishedRescale, ...], moves: StepMoves, reports: Reports
) -> tuple[FinishedRescale, ...]:
    """The history with the moves of a step whose rescale was replaced while it ran."""
    found = list(history)
    for place, each in enumerate(history):
        if each.number == moves.number:
            found[place] = replace(each, moved=_add_step(each.moved, moves, reports))
    return tuple(found)


def _add_step(moved: MovedTotals, moves: StepMoves, reports: Reports) -> MovedTotals:
    """Add a step to the totals; a step that moved nothing, as during a pause, does not count."""
    if not (moves.announced or moves.ahead or moves.collect or moves.acquire):
        return moved
    return MovedTotals(
        moved.bins + len(moves.collect),
        moved.keys + sum(move.keys for move in moves.collect),
        moved.bytes + sum(move.bytes for move in moves.collect),
        moved.steps + 1,
        max(moved.longest_seconds, reports.seconds),
        moved.copied_bytes + reports.copied_bytes,
    )


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
