"""Shares: which worker owns which bins, without a generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anabranch.records.bin_set import BinSet
from anabranch.records.placed import Assignment


class Shares(msgspec.Struct, frozen=True):
    """The worker of each bin of one region, wanted or past: ``workers[bin]``."""

    region: str
    workers: tuple[int, ...]

    def of(self, worker: int) -> BinSet:
        """The bins of one worker."""
        return BinSet.of(bin for bin, owner in enumerate(self.workers) if owner == worker)

    def can_stay(self, number: int, worker: int) -> bool:
        """Whether a bin stays with its worker. A bin newer than the shares does.

        >>> Shares("by-name", (0, 1)).can_stay(1, 0)
        False
        """
        return number >= len(self.workers) or self.workers[number] == worker


def shares_of(placement: Iterable[Assignment]) -> tuple[Shares, ...]:
    """The shares of a placement."""
    return tuple(Shares(each.region, each.workers) for each in placement)


def members(placement: Iterable[Assignment | Shares]) -> tuple[int, ...]:
    """The workers that own any bin, ascending.

    Their numbers may have gaps: a worker was removed by name, or keeping others than the first
    moved the fewest bytes. ``seat_numbers`` closes the gaps.

    >>> members([Shares("a", (0, 3)), Shares("b", (3, 1))])
    (0, 1, 3)
    """
    return tuple(sorted({worker for each in placement for worker in each.workers}))


def seat_numbers(workers: Sequence[int]) -> dict[int, int]:
    """Number the workers without gaps.

    >>> seat_numbers((0, 3))
    {0: 0, 3: 1}
    """
    return {worker: place for place, worker in enumerate(sorted(workers))}


def reassigned(
    placement: Sequence[Assignment], changes: Iterable[tuple[str, int, int]]
) -> tuple[Assignment, ...]:
    """The placement after (region, bin, worker) changes; changed regions get the next generation.

    >>> reassigned([Assignment("a", 4, (0, 0))], [("a", 1, 2)])[0]
    Assignment(region='a', generation=5, workers=(0, 2))
    """
    wanted: dict[str, dict[int, int]] = {}
    for region, number, worker in changes:
        wanted.setdefault(region, {})[number] = worker
    found = []
    for each in placement:
        new = wanted.get(each.region, {})
        found.append(_next(each, [new.get(bin, old) for bin, old in enumerate(each.workers)]))
    return tuple(found)


def with_bins(assignment: Assignment, bins: int) -> Assignment:
    """The assignment of a source with newly found partitions.

    Each new one goes to the worker with the fewest; none moves. A region never shrinks.

    >>> with_bins(Assignment("source", 1, (0, 0, 1)), 5)
    Assignment(region='source', generation=2, workers=(0, 0, 1, 1, 0))
    """
    owners = list(assignment.workers)
    present = sorted(set(owners)) or [0]
    while len(owners) < bins:
        owners.append(min(present, key=lambda worker: (owners.count(worker), worker)))
    return _next(assignment, owners)


def _next(assignment: Assignment, owners: Sequence[int]) -> Assignment:
    """The assignment to these owners, in the next generation if they differ."""
    workers = tuple(owners)
    if workers == assignment.workers:
        return assignment
    generation = assignment.generation + 1
    return msgspec.structs.replace(assignment, generation=generation, workers=workers)
