"""Rescales as users see them: progress, remaining work, forecast."""

from __future__ import annotations

from collections import Counter

from anabranch.coordinator.memory import Memory
from anabranch.coordinator.plans import current_loads, current_placement
from anabranch.errors import OperationRefused
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.protocol.status import RescaleStatus
from anabranch.records.placed import Assignment
from anabranch.rescale import phases
from anabranch.rescale.controller import Rescale, is_moving, next_placement
from anabranch.rescale.forecast import Forecast, duration, forecast
from anabranch.rescale.loads import Loads
from anabranch.rescale.moved_counts import moved_of
from anabranch.rescale.moves import Move, moves_between
from anabranch.rescale.rounds import RescaleSettings, budget_for, usual_seconds
from anabranch.rescale.targets import target_for


def forecast_of(memory: Memory, request: TargetRequest) -> Forecast:
    """Predict a rescale from the current placement. Raises ``OperationRefused``."""
    rescale, settings = memory.rescale, memory.settings.moving
    now = next_placement(rescale, movable_placement(memory))
    loads, recent = current_loads(memory, now), tuple(memory.stats.recent)
    return forecast(request, now, loads, recent, settings, rescale.costs)


def has_placement(memory: Memory) -> bool:
    """Whether it is known who owns which bins: by the last commit, or by the node's dataflow."""
    return memory.journal.commit is not None or memory.info is not None


def movable_placement(memory: Memory) -> tuple[Assignment, ...]:
    """The current placement. Raises ``OperationRefused`` if the dataflow has no bins."""
    if not has_placement(memory):
        raise OperationRefused("The node is still starting", do="Ask again in a moment.")
    placed = current_placement(memory)
    if not placed:
        raise OperationRefused(
            "No region of the dataflow has bins: there is nothing to scale",
            do="Run it again with another number of workers.",
        )
    return placed


def rescale_status(memory: Memory) -> RescaleStatus | None:
    """The status of the rescale in progress, if any."""
    rescale = memory.rescale
    if not has_placement(memory) or not is_moving(rescale):
        return None
    now = next_placement(rescale, current_placement(memory))
    loads = current_loads(memory, now)
    return rescale_progress(rescale, now, loads, tuple(memory.stats.recent), memory.settings.moving)


def rescale_progress(
    rescale: Rescale,
    now: tuple[Assignment, ...],
    loads: Loads,
    recent: tuple[float, ...],
    settings: RescaleSettings,
) -> RescaleStatus:
    """The progress of a rescale. In ``now``, bins in hand-over have next_placement."""
    phase = rescale.phase.inner if isinstance(rescale.phase, phases.Paused) else rescale.phase
    left, moved = _left(phase, now, loads), moved_of(phase)
    migration = phase.migration if isinstance(phase, phases.Moving | phases.RollingBack) else None
    usual = usual_seconds(recent) if migration is None else migration.usual_seconds
    budget = budget_for(settings, usual)
    steps, seconds, _ = duration(left, usual, settings, rescale.costs)
    more = _more_steps(rescale, phase, left)
    return RescaleStatus(
        number=rescale.number,
        phase=str(type(rescale.phase).__struct_config__.tag),
        request=None if isinstance(phase, phases.Steady) else phase.request,
        waiting=dict(Counter(move.region for move in left)),
        in_hand_over=dict(Counter(move.region for move in rescale.handing)),
        moved_bins=moved.bins,
        moved_keys=moved.keys,
        moved_bytes=moved.bytes,
        left_bins=len(left),
        left_keys=sum(move.keys for move in left),
        left_bytes=sum(move.bytes for move in left),
        steps=moved.steps,
        steps_left=steps + more,
        seconds_left=seconds + more * usual,
        longest_seconds=moved.longest_seconds,
        usual_seconds=usual,
        budget_seconds=budget.seconds,
        budget_bytes=budget.bytes,
        budget_bins=budget.bins,
        copied_bytes=moved.copied_bytes,
    )


def _left(phase: phases.Phase, now: tuple[Assignment, ...], loads: Loads) -> tuple[Move, ...]:
    """The moves that are still to do."""
    if isinstance(phase, phases.Moving | phases.RollingBack):
        return phase.migration.left(now, loads)
    if isinstance(phase, phases.Interrogating):
        # The target is final once workers have answered; until then this is the best guess.
        return moves_between(now, target_for(phase.request, now, loads), loads)
    return ()


def _more_steps(rescale: Rescale, phase: phases.Phase, left: tuple[Move, ...]) -> int:
    """The steps beside the rounds: for the last hand-over, and to release workers without bins."""
    if isinstance(phase, phases.Steady):
        return 1
    if left:
        return 1 + isinstance(phase, phases.Interrogating)
    return 1 + bool(rescale.handing)
