"""The forecast of a rescale: for ``--dry-run``, and for the time left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares, members
from anabranch.rescale.costs import CostModel
from anabranch.rescale.loads import Loads
from anabranch.rescale.moves import Move, moves_between
from anabranch.rescale.rounds import RescaleSettings, budget_for, costs_for, rounds, usual_seconds
from anabranch.rescale.targets import check_request, target_for


class Forecast(msgspec.Struct, frozen=True):
    """What a rescale will move, in how many steps and seconds, and the workers after it.

    ``seconds`` covers the steps and what moving adds to them, if they run without a pause.
    """

    bins: int
    keys: int
    bytes: int
    steps: int
    seconds: float
    longest_round_bytes: int
    workers: tuple[int, ...]
    target: tuple[Shares, ...]


def forecast(
    request: TargetRequest,
    placement: Sequence[Assignment],
    loads: Loads,
    recent: Sequence[float],
    settings: RescaleSettings,
    costs: CostModel,
) -> Forecast:
    """Predict the effect of a request without applying it."""
    check_request(request, placement)
    target = target_for(request, placement, loads)
    moves = moves_between(placement, target, loads)
    usual = usual_seconds(recent)
    steps, seconds, longest = duration(moves, usual, settings, costs)
    if moves:
        steps, seconds = steps + 1, seconds + usual  # the step that interrogates the workers
    return Forecast(
        len(moves),
        sum(move.keys for move in moves),
        sum(move.bytes for move in moves),
        steps,
        seconds,
        longest,
        members(target),
        target,
    )


def duration(
    moves: Sequence[Move], usual: float, settings: RescaleSettings, costs: CostModel
) -> tuple[int, float, int]:
    """The steps and seconds that these moves take, and the bytes of the largest round.

    Rounds overlap in copying, handing over and acquiring, so there are two more steps than rounds,
    or one more if nothing is copied ahead.
    """
    if not moves:
        return 0, 0.0, 0
    costs = costs_for(settings, costs)
    cut = rounds(moves, budget_for(settings, usual), costs)
    ahead = settings.prefetch and any(not move.is_empty for move in moves)
    steps = len(cut) + (2 if ahead else 1)
    moving = sum(costs.seconds(move.bytes) for move in moves if not move.is_empty)
    longest = max(sum(move.bytes for move in taken) for taken in cut)
    return steps, steps * usual + moving, longest
