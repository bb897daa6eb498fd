"""The first assignments of bins to workers, region by region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from anabranch.records.placed import Assignment
from anabranch.records.shares import with_bins


def equal_shares(
    regions: Sequence[str], bins: int, workers: int, last: Sequence[Assignment]
) -> tuple[Assignment, ...]:
    """Assign bins in equal, contiguous shares; a change from ``last`` is a new generation.

    >>> equal_shares(["by-name"], 4, 2, ())[0].workers
    (0, 0, 1, 1)
    """
    owners = tuple(number * workers // bins for number in range(bins))
    # A region without an assignment gets its first generation here.
    return later_than([Assignment(region, 1, owners) for region in regions], last)


def source_shares(
    partitions: Mapping[str, int], workers: int, last: Sequence[Assignment]
) -> tuple[Assignment, ...]:
    """Assign the partitions of each source: those in ``last`` stay, new ones are added.

    >>> source_shares({"in": 3}, 2, ())
    (Assignment(region='in', generation=1, workers=(0, 0, 1), source=True),)
    """
    before = {assignment.region: assignment for assignment in last if assignment.source}
    found = []
    for source, count in partitions.items():
        kept = before.get(source)
        if kept is None:
            (made,) = equal_shares([source], count, min(workers, count), ())
            found.append(replace(made, source=True))
        else:
            found.append(with_bins(kept, count))
    return tuple(found)


def later_than(now: Sequence[Assignment], planned: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """Assignments for a revision of a plan: a change of the planned owners is a new generation."""
    known = {each.region: each for each in planned}
    return tuple(_later(each, known.get(each.region)) for each in now)


def _later(now: Assignment, planned: Assignment | None) -> Assignment:
    if planned is None or planned.generation < now.generation:
        return now
    if planned.workers == now.workers:
        return planned
    return replace(now, generation=planned.generation + 1)
