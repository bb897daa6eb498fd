"""A rescale as others see it: what is done, what is left, and which bins are where."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.plan.placed import Assignment
from anabranch.rescale.controller import Rescale, arrived
from anabranch.rescale.course import Course
from anabranch.rescale.forecast import duration
from anabranch.rescale.history import Moved
from anabranch.rescale.loads import Loads
from anabranch.rescale.moves import Move, bins_of
from anabranch.rescale.phases import (
    Cancelling,
    Interrogating,
    Moving,
    Paused,
    RollingBack,
    Settled,
    Steady,
)
from anabranch.rescale.requests import Wish
from anabranch.rescale.rounds import Budget, RescaleSettings, budget_for
from anabranch.rescale.shares import members
from anabranch.rescale.step_moves import StepMoves
from anabranch.state.bins import BinSet


class RegionMoves(msgspec.Struct, frozen=True):
    """The bins of a region that are to move: still at their old owner, or in hand-over."""

    region: str
    whitelist: BinSet
    hold: BinSet


class RescaleView(msgspec.Struct, frozen=True):
    """What a rescale is doing.

    ``phase`` is its name, as it is journalled. Without a rescale under way ``wish`` is None.
    ``steps_left`` and ``seconds_left`` are a forecast, and 0 where nothing is left; ``budget`` is
    what a step may spend.
    """

    number: int
    phase: str
    wish: Wish | None
    moved: Moved
    bins_left: int
    keys_left: int
    bytes_left: int
    steps_left: int
    seconds_left: float
    budget: Budget | None
    workers: tuple[int, ...]
    target_workers: tuple[int, ...]
    regions: tuple[RegionMoves, ...]


def view_of(
    rescale: Rescale,
    placement: Sequence[Assignment],
    loads: Loads,
    settings: RescaleSettings,
    moves: StepMoves | None = None,
) -> RescaleView:
    """What is seen after the last commit; ``moves`` is the step under way, if there is one."""
    phase = rescale.phase
    inner = phase.inner if isinstance(phase, Paused) else phase
    course = inner.course if isinstance(inner, Moving | RollingBack) else None
    now = arrived(rescale, placement)
    left = () if course is None else course.left(now, loads)
    steps, seconds = _time_left(course, left, settings, rescale)
    return RescaleView(
        rescale.number,
        str(phase.__struct_config__.tag),
        None if isinstance(inner, Steady) else inner.wish,
        _moved(inner),
        len(left),
        sum(move.keys for move in left),
        sum(move.bytes for move in left),
        steps,
        seconds,
        None if course is None else budget_for(settings, course.usual_seconds),
        members(now),
        members(now) if course is None else members(course.target),
        tuple(_region(each.region, left, rescale.handing, moves) for each in placement),
    )


def _moved(phase: Steady | Settled | Interrogating | Moving | RollingBack | Cancelling) -> Moved:
    if isinstance(phase, Moving | RollingBack):
        return phase.course.moved
    return phase.moved if isinstance(phase, Settled | Cancelling) else Moved()


def _time_left(
    course: Course | None, left: Sequence[Move], settings: RescaleSettings, rescale: Rescale
) -> tuple[int, float]:
    if course is None:
        return int(bool(rescale.handing)), 0.0
    steps, seconds, _ = duration(left, course.usual_seconds, settings, rescale.costs)
    return steps, seconds


def _region(
    region: str, left: Sequence[Move], handing: Sequence[Move], moves: StepMoves | None
) -> RegionMoves:
    """Bins in hand-over: collected by the last step, or by the one under way."""
    hold = bins_of(handing, region)
    if moves is not None:
        hold |= bins_of(moves.collect, region)
    return RegionMoves(region, bins_of(left, region) - hold, hold)
