"""Small placements and loads for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.records.worker_load import BinLoad, WorkerLoad
from anabranch.rescale.costs import Prefetched
from anabranch.rescale.loads import Loads, RegionLoad
from anabranch.rescale.migration import Reports
from anabranch.rescale.step_moves import StepMoves

REGION = "by-name"


def placed(*workers: int, region: str = REGION, generation: int = 1) -> tuple[Assignment, ...]:
    return (Assignment(region, generation, workers),)


def loads(
    size: Sequence[int],
    seconds: Sequence[float] | None = None,
    region: str = REGION,
    *,
    source: bool = False,
) -> Loads:
    heat = seconds or [0.0] * len(size)
    bins = tuple(BinLoad(max(1, s), s, 0.0, h) for s, h in zip(size, heat, strict=True))
    return Loads((RegionLoad(region, bins, source=source),))


def moved_bytes(placement: Sequence[Assignment], target: Sequence[Shares], known: Loads) -> int:
    wanted = {shares.region: shares.workers for shares in target}
    return sum(
        known.of(each.region).bin(number).bytes
        for each in placement
        for number, owner in enumerate(each.workers)
        if wanted[each.region][number] != owner
    )


def answers(moves: StepMoves) -> tuple[WorkerLoad, ...]:
    """What all workers say when they are asked."""
    if not moves.asked:
        return ()
    return tuple(
        WorkerLoad(each.region, worker, each.generation, (), ())
        for each in moves.placement
        for worker in sorted(set(each.workers))
    )


def all_told(moves: StepMoves, seconds: float = 0.1) -> Reports:
    """Every answer, and every copy made."""
    done = tuple(Prefetched(*move.end, move.bytes, 0.001) for move in moves.prefetch)
    return Reports(seconds, answers(moves), done)
