"""Rounds: how many bins one step of a rescale may move.

The policies ``all-at-once``, ``fluid`` and ``batched`` share one planner. They differ only in the
budget: unlimited, one bin, or a number of bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import inf
from statistics import median

import msgspec

from anabranch.rescale.costs import CostModel
from anabranch.rescale.moves import Move

SLACK = 0.25
"""By what share of its usual time a step may take longer."""

USUAL_SECONDS = 0.2
"""The assumed duration of a step until one is measured."""


class MovePolicy(StrEnum):
    """How to move: everything in one step, one bin per step, or as much as the budget allows."""

    ALL_AT_ONCE = "all-at-once"
    FLUID = "fluid"
    BATCHED = "batched"


class RescaleSettings(msgspec.Struct, frozen=True):
    """The user's settings for rescaling. None of them changes a result (R9).

    ``budget_bytes`` and ``budget_ms`` limit what a step may spend on moving; without ``budget_ms``
    a step may take ``slack`` of its usual time longer. With ``prefetch``, bins are copied to the
    home of their new owner before the hand-over; without, the bytes are those of the bins that a
    step hands over, and take no time by themselves. ``answer_steps`` and ``prefetch_steps`` are how
    many steps to wait for an answer or a copy before going on without.
    """

    policy: MovePolicy = MovePolicy.BATCHED
    budget_bytes: int | None = None
    budget_ms: float | None = None
    slack: float = SLACK
    prefetch: bool = True
    answer_steps: int = 2
    prefetch_steps: int = 8


def usual_seconds(recent: Sequence[float]) -> float:
    """The usual duration of a step: the median of recent ones."""
    return median(recent) if recent else USUAL_SECONDS


class Budget(msgspec.Struct, frozen=True):
    """What one step may spend on moving; None is unlimited."""

    bytes: int | None = None
    seconds: float | None = None
    bins: int | None = None


def budget_for(settings: RescaleSettings, usual: float) -> Budget:
    """The budget of a step that usually takes ``usual`` seconds.

    >>> budget_for(RescaleSettings(), 0.4)
    Budget(bytes=None, seconds=0.1, bins=None)
    """
    match settings.policy:
        case MovePolicy.ALL_AT_ONCE:
            return Budget()
        case MovePolicy.FLUID:
            return Budget(bins=1)
        case MovePolicy.BATCHED:
            given = settings.budget_ms
            seconds = settings.slack * usual if given is None else given / 1000
            return Budget(settings.budget_bytes, seconds)


def costs_for(settings: RescaleSettings, costs: CostModel) -> CostModel:
    """The cost model of moves; without prefetching, every bin costs the same.

    >>> costs_for(RescaleSettings(prefetch=False), CostModel(seconds_per_bin=0.5)).seconds(10**9)
    0.5
    """
    return costs if settings.prefetch else msgspec.structs.replace(costs, bytes_per_second=inf)


def scale_budget(budget: Budget, pace: float) -> Budget:
    """The budget with its seconds multiplied by ``pace``.

    >>> scale_budget(Budget(seconds=0.1), 0.5)
    Budget(bytes=None, seconds=0.05, bins=None)
    """
    seconds = None if budget.seconds is None else budget.seconds * pace
    return msgspec.structs.replace(budget, seconds=seconds)


SLOWER, FASTER = 0.75, 1.25
SLOWEST, FASTEST = 1 / 16, 16.0


def next_pace(pace: float, cost: float, allowed: float | None) -> float:
    """The share of the budget to plan for next, after a step in which moving took ``cost`` seconds.

    The estimate of a round's cost is poor: part of the cost does not depend on how much is copied,
    and all of it grows on a busy machine. So after a round that cost more than ``allowed``, rounds
    shrink; after any other they grow, even beyond the estimate. The duration of the whole step does
    not count: if new workers exceed the number of cores, every step is longer, and moving less
    would only add steps.

    >>> next_pace(1.0, cost=0.06, allowed=0.05), next_pace(1.0, cost=0.04, allowed=0.05)
    (0.75, 1.25)
    """
    if allowed is None:
        return pace
    return max(pace * SLOWER, SLOWEST) if cost > allowed else min(pace * FASTER, FASTEST)


LEAST_ALLOWANCE = 1 << 20


def allowed_bytes(budget: Budget, costs: CostModel) -> int | None:
    """The number of bytes that a step may copy within its budget; None is unlimited.

    >>> allowed_bytes(Budget(seconds=0.1), CostModel(bytes_per_second=1e8))
    10000000
    """
    bounds = [] if budget.bytes is None else [budget.bytes]
    if budget.seconds is not None:
        bounds.append(int(budget.seconds * costs.bytes_per_second))
    return max(min(bounds), LEAST_ALLOWANCE) if bounds else None


class Purse:
    """The budget of a step while its round is put together.

    A bin is paid for if it fits. The first one is always paid for, so that a rescale makes progress
    with any budget: a budget is never exceeded by more than one bin. Empty bins are free. Copied
    bins and bins handed over are counted separately: with ``fluid``, one is copied while the one
    before it is handed over. Time is counted per new owner: they copy in parallel, and a step waits
    for the slowest.
    """

    def __init__(self, budget: Budget, costs: CostModel) -> None:
        self._budget, self._costs = budget, costs
        self._bytes = 0
        self._seconds: dict[int, float] = {}
        self._copied = 0
        self._handed = 0

    def owe(self, move: Move, *, copies: bool) -> None:
        """Pay for a move that began earlier, even if it does not fit."""
        size = move.bytes if copies else 0
        self._bytes += size
        self._seconds[move.to_worker] = self._with(move, size)
        self._copied += copies
        self._handed += not copies

    def _with(self, move: Move, size: int) -> float:
        return self._seconds.get(move.to_worker, 0.0) + self._costs.seconds(size)

    def _fits(self, move: Move, copies: bool) -> bool:
        budget, size = self._budget, move.bytes if copies else 0
        bins = self._copied if copies else self._handed
        return (
            (budget.bytes is None or self._bytes + size <= budget.bytes)
            and (budget.seconds is None or self._with(move, size) <= budget.seconds)
            and (budget.bins is None or bins < budget.bins)
        )

    def take(self, moves: Iterable[Move], *, copies: bool) -> tuple[Move, ...]:
        """Pay for moves in order up to the first that does not fit; later ones never overtake.

        ``copies``: their bytes are copied in this step.
        """
        found = []
        for move in moves:
            if not move.is_empty:
                if self._copied + self._handed and not self._fits(move, copies):
                    break
                self.owe(move, copies=copies)
            found.append(move)
        return tuple(found)


def rounds(moves: Sequence[Move], budget: Budget, costs: CostModel) -> tuple[tuple[Move, ...], ...]:
    """Cut the moves into rounds within the budget, in order."""
    found = []
    left = tuple(moves)
    while left:
        taken = Purse(budget, costs).take(left, copies=True)
        found.append(taken)
        left = left[len(taken) :]
    return tuple(found)
