"""The totals of what a rescale moved: a step counts for the rescale it was planned for."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.protocol.rescale_history import FinishedRescale, MovedTotals
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
    return tuple(
        replace(each, moved=_add_step(each.moved, moves, reports))
        if each.number == moves.number
        else each
        for each in history
    )


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
