"""Assignments: bin → worker, region by region."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.placed import Assignment


def equal_shares(
    regions: Sequence[str], bins: int, workers: int, last: Sequence[Assignment]
) -> tuple[Assignment, ...]:
    """Bins in equal, contiguous shares; other shares than ``last`` are a new generation.

    >>> equal_shares(["by-name"], 4, 2, ())[0].workers
    (0, 0, 1, 1)
    """
    before = {assignment.region: assignment for assignment in last}
    owners = tuple(number * workers // bins for number in range(bins))
    found = []
    for region in regions:
        kept = before.get(region)
        if kept is not None and kept.workers == owners:
            found.append(kept)
        else:
            generation = 1 if kept is None else kept.generation + 1
            found.append(Assignment(region, generation, owners))
    return tuple(found)
