"""Applies a request to a rescale, or refuses it with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from anabranch.errors import OperationRefused
from anabranch.protocol.rescale_history import (
    FinishedRescale,
    MovedTotals,
    RescaleOutcome,
    append_finished,
)
from anabranch.protocol.rescale_requests import (
    Assign,
    CancelRescale,
    PauseRescale,
    Rebalance,
    RescaleRequest,
    ResumeRescale,
    Scale,
    TargetRequest,
)
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares, members, reassigned, shares_of
from anabranch.rescale.controller import Rescale, history_with_settled, next_placement
from anabranch.rescale.loads import Loads
from anabranch.rescale.migration import Migration
from anabranch.rescale.moved_counts import moved_of
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
from anabranch.rescale.rounds import USUAL_SECONDS
from anabranch.rescale.targets import check_request, target_for

UnderWay: TypeAlias = Interrogating | Moving | RollingBack | Cancelling


def apply_request(
    rescale: Rescale, asked: RescaleRequest, placement: Sequence[Assignment]
) -> Rescale:
    """The rescale after a request; ``placement`` is that of the last commit.

    The next plan follows it, and the next commit makes it durable.
    """
    match asked:
        case Scale() | Rebalance() | Assign():
            return _start(rescale, asked, placement)
        case PauseRescale():
            return _pause(rescale)
        case ResumeRescale():
            if not isinstance(rescale.phase, Paused):
                raise _refusal("no rescale is paused")
            return replace(rescale, phase=rescale.phase.inner)
        case CancelRescale():
            return _roll_back(rescale) if asked.roll_back else _cancel(rescale)


def _start(rescale: Rescale, request: TargetRequest, placement: Sequence[Assignment]) -> Rescale:
    """Start a rescale from the current placement; it replaces the one under way."""
    placement = next_placement(rescale, placement)
    check_request(request, placement)
    phase = _unpaused(rescale.phase)
    history = history_with_settled(rescale, placement)
    origin = shares_of(placement)
    if not isinstance(phase, Steady | Settled):
        replaced, moved = RescaleOutcome.REPLACED, moved_of(phase)
        entry = FinishedRescale(rescale.number, phase.request, replaced, moved)
        history = append_finished(history, entry)
        origin = _origin(phase)
    return replace(
        rescale,
        number=rescale.number + 1,
        turn=rescale.turn + 1,
        phase=Interrogating(request, origin),
        history=history,
    )


def _pause(rescale: Rescale) -> Rescale:
    phase = rescale.phase
    if isinstance(phase, Paused):
        return rescale
    if not isinstance(phase, Interrogating | Moving | RollingBack):
        raise _refusal("no rescale is under way that could be paused")
    return replace(rescale, phase=Paused(phase))


def _cancel(rescale: Rescale) -> Rescale:
    phase = _under_way(rescale)
    if isinstance(phase, Cancelling):
        return rescale
    stopped = Cancelling(phase.request, _origin(phase), moved_of(phase))
    return replace(rescale, turn=rescale.turn + 1, phase=stopped)


def _roll_back(rescale: Rescale) -> Rescale:
    phase = _under_way(rescale)
    if isinstance(phase, RollingBack):
        return replace(rescale, phase=phase)
    usual = phase.migration.usual_seconds if isinstance(phase, Moving) else USUAL_SECONDS
    back = Migration(phase.origin, usual, moved=moved_of(phase))
    return replace(rescale, turn=rescale.turn + 1, phase=RollingBack(phase.request, back))


def _under_way(rescale: Rescale) -> UnderWay:
    phase = _unpaused(rescale.phase)
    if isinstance(phase, Steady | Settled):
        raise _refusal("no rescale is under way")
    return phase


def _unpaused(phase: Phase) -> Steady | Settled | UnderWay:
    return phase.inner if isinstance(phase, Paused) else phase


def _origin(phase: UnderWay) -> tuple[Shares, ...]:
    return phase.migration.target if isinstance(phase, RollingBack) else phase.origin


def _refusal(why: str) -> OperationRefused:
    return OperationRefused(f"This cannot be done now: {why}")


def apply_at_once(
    rescale: Rescale, request: TargetRequest, placement: Sequence[Assignment], loads: Loads
) -> tuple[Rescale, tuple[Assignment, ...]]:
    """Apply a request at once while nothing runs: a start with another number of workers.

    It also replaces a worker whose host is gone: ``Scale(remove=(worker,))``. The state is in the
    store, where the new owners find it. A rescale that was under way is replaced.
    """
    asked = _start(rescale, request, placement)
    now = next_placement(rescale, placement)
    target = target_for(request, now, loads)
    changes = (
        (shares.region, number, worker)
        for shares in target
        for number, worker in enumerate(shares.workers)
    )
    settled = replace(
        asked,
        phase=Settled(request, RescaleOutcome.REOPENED, MovedTotals()),
        handing=(),
        workers=tuple(sorted({*asked.workers, *members(now)})),
    )
    return settled, reassigned(now, changes)
