"""Moves: the bins that change owner, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.rescale.loads import Loads


class Move(msgspec.Struct, frozen=True):
    """A bin that moves from one worker to another, with its keys and bytes when planned."""

    region: str
    bin: int
    from_worker: int
    to_worker: int
    keys: int = 0
    bytes: int = 0

    @property
    def end(self) -> tuple[str, int, int]:
        """The bin that moves and its new worker."""
        return self.region, self.bin, self.to_worker

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be handed over."""
        return not self.keys and not self.bytes


def moves_between(
    placement: Sequence[Assignment], target: Iterable[Shares], loads: Loads
) -> tuple[Move, ...]:
    """The moves that lead to a target: sources first, then bins of all regions, hottest first.

    Regions and bins that are newer than the target stay where they are.
    """
    wanted = {shares.region: shares.workers for shares in target}
    found: list[tuple[tuple[bool, float, int, int], Move]] = []
    for place, assignment in enumerate(placement):
        region = loads.of(assignment.region)
        goal = wanted.get(assignment.region, ())
        for number, (now, then) in enumerate(zip(assignment.workers, goal, strict=False)):
            if now == then:
                continue
            load = region.bin(number)
            # Rank bins without a measured time by rows, below all bins with one.
            heat = load.seconds or load.rows * 1e-9
            move = Move(assignment.region, number, now, then, load.keys, load.bytes)
            found.append(((not region.source, -heat, place, number), move))
    return tuple(move for _, move in sorted(found, key=lambda each: each[0]))


def joiners(moves: Iterable[Move]) -> tuple[tuple[str, int], ...]:
    """The regions and workers that get bins."""
    return tuple(sorted({(move.region, move.to_worker) for move in moves}))
