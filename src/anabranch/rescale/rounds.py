"""Rounds: how much of a rescale one step may do.

There is one planner. ``all-at-once``, ``fluid`` and ``batched`` are budgets of it: none, one bin,
and so many bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import median

import msgspec

from anabranch.rescale.costs import CostModel
from anabranch.rescale.moves import Move

SLACK = 0.25
"""By how much of its usual time a step may take longer."""

USUAL_SECONDS = 0.2
"""What a step is taken to need when none was measured."""


class MovePolicy(StrEnum):
    """How to move: everything in one step, one bin a step, or as much as the budget allows."""

    ALL_AT_ONCE = "all-at-once"
    FLUID = "fluid"
    BATCHED = "batched"


class RescaleSettings(msgspec.Struct, frozen=True):
    """What a user may choose about rescaling. None of it changes a result (R9).

    ``budget_bytes`` and ``budget_ms`` bound what a step may spend on moving; without ``budget_ms``
    a step may take ``slack`` of its usual time longer. With ``prefetch``, bins are copied to the
    home of their new owner before they are handed over; without, bytes are those of the bins that
    a step hands over, and take no time by themselves. ``answer_steps`` and ``prefetch_steps`` are
    how many steps an answer or a copy is waited for: after that it goes on without.
    """

    policy: MovePolicy = MovePolicy.BATCHED
    budget_bytes: int | None = None
    budget_ms: float | None = None
    slack: float = SLACK
    prefetch: bool = True
    answer_steps: int = 2
    prefetch_steps: int = 8


def usual_seconds(recent: Sequence[float]) -> float:
    """What a step usually takes: the median of recent ones."""
    return median(recent) if recent else USUAL_SECONDS


class Budget(msgspec.Struct, frozen=True):
    """What one step may spend on moving; None is no bound."""

    bytes: int | None = None
    seconds: float | None = None
    bins: int | None = None


def budget_for(settings: RescaleSettings, usual: float) -> Budget:
    """The budget of a step that usually takes so many seconds.

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
    """What a move costs: where nothing is copied ahead of it, so much a bin whatever it holds.

    >>> costs_for(RescaleSettings(prefetch=False), CostModel(seconds_per_bin=0.5)).seconds(10**9)
    0.5
    """
    return costs if settings.prefetch else costs.in_place()


def paced(budget: Budget, pace: float) -> Budget:
    """A budget whose time is spent more slowly, or faster, than moves are estimated to take.

    >>> paced(Budget(seconds=0.1), 0.5)
    Budget(bytes=None, seconds=0.05, bins=None)
    """
    seconds = None if budget.seconds is None else budget.seconds * pace
    return msgspec.structs.replace(budget, seconds=seconds)


SLOWER, FASTER = 0.75, 1.25
SLOWEST, FASTEST = 1 / 16, 16.0


def next_pace(pace: float, cost: float, allowed: float | None) -> float:
    """How much of the budget to plan for next, after a step in which moving cost so many seconds.

    What a round costs is an estimate, and a poor one: a part of it does not depend on how much is
    copied, and all of it takes longer on a busy machine. So a round that cost more than it was
    allowed to is followed by smaller ones, and one that did not by larger ones, also beyond what
    the estimate would allow. How long the whole step took is not looked at: where new workers come
    on top of the cores that there are, every step is longer, and moving less would only make more
    of them.

    >>> next_pace(1.0, cost=0.06, allowed=0.05), next_pace(1.0, cost=0.04, allowed=0.05)
    (0.75, 1.25)
    """
    if allowed is None:
        return pace
    return max(pace * SLOWER, SLOWEST) if cost > allowed else min(pace * FASTER, FASTEST)


LEAST_ALLOWANCE = 1 << 20


def allowed_bytes(budget: Budget, costs: CostModel) -> int | None:
    """How many bytes a step may copy by its budget; None without a bound.

    >>> allowed_bytes(Budget(seconds=0.1), CostModel(bytes_per_second=1e8))
    10000000
    """
    bounds = [] if budget.bytes is None else [budget.bytes]
    if budget.seconds is not None:
        bounds.append(int(budget.seconds * costs.bytes_per_second))
    return max(min(bounds), LEAST_ALLOWANCE) if bounds else None


class Purse:
    """What is left of a step's budget while its round is put together.

    A bin is paid for if it fits. The first one is always paid for, so that a rescale goes on
    whatever the budget is: a budget is never exceeded by more than one bin. A bin that holds
    nothing is free. Bins that are copied and bins that are handed over are counted apart: with
    ``fluid``, one is copied while the one before it is handed over. Time is counted for each new
    owner apart: they copy beside each other, and a step waits for the slowest.
    """

    def __init__(self, budget: Budget, costs: CostModel) -> None:
        self._budget = budget
        self._costs = costs
        self.bytes = 0
        self._seconds: dict[int, float] = {}
        self._copied = 0
        self._handed = 0

    @property
    def bins(self) -> int:
        """How many bins were paid for."""
        return self._copied + self._handed

    @property
    def seconds(self) -> float:
        """What the new owner spends that has most to do."""
        return max(self._seconds.values(), default=0.0)

    def pay(self, move: Move, *, copies: bool) -> bool:
        """Pay for a move if it fits; ``copies`` if its bytes are copied in this step."""
        if move.is_empty:
            return True
        if self.bins and not self._fits(move, copies):
            return False
        self.owe(move, copies=copies)
        return True

    def owe(self, move: Move, *, copies: bool) -> None:
        """Pay for a move whether it fits or not: it was begun before."""
        size = move.bytes if copies else 0
        self.bytes += size
        self._seconds[move.to_worker] = self._with(move, size)
        self._copied += copies
        self._handed += not copies

    def _with(self, move: Move, size: int) -> float:
        return self._seconds.get(move.to_worker, 0.0) + self._costs.seconds(size)

    def _fits(self, move: Move, copies: bool) -> bool:
        budget, size = self._budget, move.bytes if copies else 0
        bins = self._copied if copies else self._handed
        return (
            (budget.bytes is None or self.bytes + size <= budget.bytes)
            and (budget.seconds is None or self._with(move, size) <= budget.seconds)
            and (budget.bins is None or bins < budget.bins)
        )

    def take(self, moves: Iterable[Move], *, copies: bool) -> tuple[Move, ...]:
        """The moves in their order up to the first that does not fit; later ones never overtake."""
        found = []
        for move in moves:
            if not self.pay(move, copies=copies):
                break
            found.append(move)
        return tuple(found)


def rounds(moves: Sequence[Move], budget: Budget, costs: CostModel) -> tuple[tuple[Move, ...], ...]:
    """The moves cut into rounds, each within the budget, in their order."""
    found = []
    left = tuple(moves)
    while left:
        taken = Purse(budget, costs).take(left, copies=True)
        found.append(taken)
        left = left[len(taken) :]
    return tuple(found)
