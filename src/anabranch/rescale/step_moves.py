"""The part of a step's plan that carries out a rescale, and its messages to workers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.messages import (
    Acquire,
    Collect,
    Hold,
    Interrogate,
    Message,
    Prefetch,
    ScaleDown,
    ScaleUp,
    Shutdown,
    in_order,
)
from anabranch.records.bin_set import BinSet
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.records.shares import Shares, members
from anabranch.rescale.costs import Prefetched
from anabranch.rescale.migration import Migration
from anabranch.rescale.moves import Move

PART = "rescale"
"""The name of the committed part."""


class StepMoves(msgspec.Struct, frozen=True):
    """A step's share of a rescale, journalled with the plan before the step runs.

    ``placement`` assigns the bins in this step. ``acquire`` are the bins whose new owner starts
    with this step, ``collect`` those that leave their owner after its data. ``prefetch`` are bins
    to copy to the home of ``to_worker`` meanwhile. ``ahead`` are these, those waiting there and
    those of ``collect``: their next owner keeps its copies of all of them current, and spends
    ``allowance`` bytes on large values. What a step adds to the bins of ``collect`` is copied when
    they are acquired, after its commit. ``asked``: workers report their loads. ``migration``: the
    step starts this migration. ``shutdown`` are workers without bins: this is their last step, and
    their homes may be removed after it. ``joining`` are the workers that will get bins of a region.
    ``allowed`` is how many seconds the step may spend on moving. ``turn`` names the request it was
    planned for, ``number`` the rescale.
    """

    turn: int
    placement: tuple[Assignment, ...]
    acquire: tuple[Move, ...] = ()
    collect: tuple[Move, ...] = ()
    prefetch: tuple[Move, ...] = ()
    asked: bool = False
    announced: tuple[Shares, ...] = ()
    migration: Migration | None = None
    settles: bool = False
    shutdown: tuple[int, ...] = ()
    ahead: tuple[Move, ...] = ()
    allowance: int | None = None
    joining: tuple[tuple[str, int], ...] = ()
    allowed: float | None = None
    number: int = 0

    def owned(self, region: str, worker: int) -> BinSet:
        """The bins of a worker in this step. No other worker has them (R1)."""
        for each in self.placement:
            if each.region == region:
                return BinSet.of(bin for bin, owner in enumerate(each.workers) if owner == worker)
        return BinSet()

    def workers(self, region: str) -> tuple[int, ...]:
        """The workers with a task of the region in this step.

        These are the owners, those that will own bins, and those that shut down. In the step that
        settles, they are the workers of all regions: those that lost bins clean up their homes.
        """
        owners = members(each for each in self.placement if each.region == region)
        joining = {worker for name, worker in self.joining if name == region}
        everybody = members(self.placement) if self.settles else ()
        return tuple(sorted({*owners, *joining, *everybody, *self.shutdown}))

    def messages(self, region: str, worker: int) -> tuple[Message, ...]:
        """A worker's messages of the rescale in this step, in protocol order."""
        generation = next((e.generation for e in self.placement if e.region == region), 0)
        found = self._announcement(region, worker, generation)
        if self.asked:
            found.append(Interrogate(region, generation))
        if arriving := _coming(self.acquire, region, worker):
            found.append(Acquire(region, generation, arriving))
        if leaving := _going(self.collect, region, worker):
            found.append(Collect(region, generation, leaving))
        if held := _going(self.ahead, region, worker):
            found.append(Hold(region, generation, held))
        if coming := _coming(self.ahead, region, worker):
            found.append(Prefetch(region, generation, coming, self.allowance))
        if worker in self.shutdown:
            found.append(Shutdown(worker))
        return in_order(found)

    def _announcement(self, region: str, worker: int, generation: int) -> list[Message]:
        """``ScaleUp`` or ``ScaleDown``, with the bins that can stay."""
        shares = next((each for each in self.announced if each.region == region), None)
        owned = self.owned(region, worker)
        if shares is None or not owned:
            return []
        now = members(each for each in self.placement if each.region == region)
        stay = BinSet.of(bin for bin in owned if shares.can_stay(bin, worker))
        kind = ScaleDown if len(members([shares])) < len(now) else ScaleUp
        return [kind(region, generation, stay)]


def _coming(moves: Sequence[Move], region: str, worker: int) -> BinSet:
    return BinSet.of(m.bin for m in moves if (m.region, m.to_worker) == (region, worker))


def _going(moves: Sequence[Move], region: str, worker: int) -> BinSet:
    return BinSet.of(m.bin for m in moves if (m.region, m.from_worker) == (region, worker))


class RescaleReport(msgspec.Struct, frozen=True):
    """A step's report on a rescale, apart from the loads of its workers.

    ``prefetched`` are the bins that their next owners copied, ``moving_seconds`` is the time of the
    worker that spent most on moving.
    """

    prefetched: tuple[Prefetched, ...] = ()
    moving_seconds: float = 0.0


def moves_of(plan: Plan) -> StepMoves | None:
    """The rescale part of a plan; None if nothing moves."""
    part = plan.parts.get(PART)
    return None if part is None else msgspec.json.decode(part.planned, type=StepMoves)
