"""What a rescale has moved: every committed step counts for the rescale that it was planned for."""

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
    """The phase after a step of its rescale, with what that step moved.

    Also if it was planned before the rescale was cancelled or rolled back: bins that it has
    collected go over.
    """
    match phase:
        case Settled() | Cancelling():
            return replace(phase, moved=_added(phase.moved, moves, reports))
        case Moving() | RollingBack():
            moved = _added(phase.migration.moved, moves, reports)
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


def credited(
    history: tuple[FinishedRescale, ...], moves: StepMoves, reports: Reports
) -> tuple[FinishedRescale, ...]:
    """The history after a step of a rescale that was replaced while the step ran."""
    return tuple(
        replace(each, moved=_added(each.moved, moves, reports))
        if each.number == moves.number
        else each
        for each in history
    )


def _added(moved: MovedTotals, moves: StepMoves, reports: Reports) -> MovedTotals:
    """A step that had no part in moving does not count: a pause has many."""
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
