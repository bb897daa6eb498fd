"""The compaction policy: which runs of each bin a write merges, decided from counts alone.

A write creates at most one file. For each bin it contains the step's changes merged with the newest
``depth`` runs of that bin; depth 0 is the changes alone. The rules, in order of priority:

1. *young*: absorb the newest run whole while it and the changes together are small, so that a
   pipeline of tiny steps keeps one young file. This rule is outside the budget.
2. *crowded*: merge a bin with more runs than ``run_limit``.
3. *tiers*: when the newest ``fan_out`` runs of a bin are about the same size, merge them, along
   with each next run that is not larger than the result so far. So below the newest runs, sizes
   at least double from run to run.
4. *rotten*: merge a bin with too many dead rows down to the bottom, which removes them.
5. *sparse*: rewrite a run of which less than half still counts, so that its file can be removed.

The budget bounds the rows that rules 2 to 5 read in a step. Within a rule the most urgent bins
come first. The first is always merged, so a bin does not wait forever because it exceeds the budget
or because earlier rules use it up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.records.bins import Mask
from anabranch.runs.keys import Index

Shares = npt.NDArray[np.float64]
#: The depth that a rule requests for each bin, and how urgently.
_Request: TypeAlias = tuple[Index, Shares]


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The parameters of the policy."""

    young_bytes: int = 1 << 20
    fan_out: int = 4
    run_limit: int = 8
    dead_share: float = 0.3
    sparse_share: float = 0.5
    #: Runs with fewer rows than this in a bin count as equally small.
    small_rows: int = 64
    #: The smallest budget of a step.
    budget_rows: int = 200_000


LIMITS = CompactionLimits()


class Stack:
    """The row counts of an owner's runs, newest first.

    ``rows`` has a row per run and a column per bin: the run's rows in that bin, 0 if the run is not
    listed for it. ``shares`` is the share of each run's rows that is still listed by any owner,
    ``sizes`` each file's bytes. With ``totals``, all rows of each file, a run that this write makes
    sparse counts as sparse at once: where rows expire, whole files die together and should not
    wait for the next step.
    """

    def __init__(
        self, rows: Index, shares: Shares, sizes: Index, totals: Index | None = None
    ) -> None:
        """Number the runs of each bin from 1, the newest, down; 0 for runs not listed for it."""
        self.rows = rows
        self.shares = shares
        self.sizes = sizes
        self.totals = totals
        self.listed: Mask = rows > 0
        self.places: Index = np.where(self.listed, np.cumsum(self.listed, axis=0), 0)
        self.heights: Index = self.listed.sum(axis=0)
        #: Row *p* is, for each bin, the number of rows of its run at place *p* + 1.
        self.by_place = np.zeros((self.heights.max(initial=0), rows.shape[1]), dtype=np.int64)
        run, number = np.nonzero(self.listed)
        self.by_place[self.places[run, number] - 1, number] = rows[run, number]
        self._above = np.zeros((len(self.by_place) + 1, rows.shape[1]), dtype=np.int64)
        np.cumsum(self.by_place, axis=0, out=self._above[1:])

    def absorbed(self, depths: Index) -> Mask:
        """Which runs are absorbed in which bins at these depths."""
        return self.listed & (self.places <= depths)

    def rows_above(self, depths: Index) -> Index:
        """The number of rows in the newest ``depths`` runs of each bin."""
        return self._above[depths, np.arange(len(depths))]


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """The input of the rules: the stack, the rows each bin gains and its live keys after that."""

    stack: Stack
    changed: Index
    live: Index
    limits: CompactionLimits


def average_budget(changed: int, held: int, limits: CompactionLimits = LIMITS) -> int:
    """The average number of rows that merging reads in a step, whatever the sizes.

    A changed row is read once per tier, and a whole bin when its dead rows reach their share.

    >>> average_budget(1000, 64_000, CompactionLimits(fan_out=4, dead_share=0.5))
    5000
    """
    tiers = math.log(max(held / max(changed, 1), 1), limits.fan_out)
    return int(changed * (tiers + 1 / limits.dead_share))


def default_budget(changed: int, held: int, limits: CompactionLimits = LIMITS) -> int:
    """The number of rows a step may read for merging: the average, but enough for many bins."""
    return max(limits.budget_rows, average_budget(changed, held, limits))


def choose_depths(
    stack: Stack,
    changed: Index,
    changed_bytes: int,
    live: Index,
    budget: int,
    limits: CompactionLimits = LIMITS,
) -> Index:
    """Choose how many runs of each bin the write absorbs, counted from the newest.

    ``changed`` is the rows that the step adds to each bin, ``live`` each bin's keys after it.
    """
    step = _Step(stack, changed, live, limits)
    depths = _young(step, changed_bytes)
    for rule in (_crowded, _tiers, _rotten, _sparse):
        wanted, urgency = rule(step, depths)
        asking = np.flatnonzero(wanted > depths)
        queue = asking[np.argsort(-urgency[asking], kind="stable")]
        cost = (stack.rows_above(wanted) - stack.rows_above(depths))[queue]
        fits = np.cumsum(cost) <= budget
        fits[:1] = True
        served = queue[fits]
        depths[served] = wanted[served]
        budget -= int(cost[fits].sum())
    return depths


def _young(step: _Step, changed_bytes: int) -> Index:
    """Depth 1 for the bins of small runs that are the newest in every bin they are listed for."""
    depths = np.zeros(len(step.changed), dtype=np.int64)
    if not step.changed.any():
        return depths
    room = step.limits.young_bytes - changed_bytes
    for size, places in zip(step.stack.sizes.tolist(), step.stack.places, strict=True):
        if size <= room and places.max() == 1:
            depths[places == 1] = 1
            room -= size
    return depths


def _crowded(step: _Step, taken: Index) -> _Request:
    """Merge bins with too many runs to half the limit, so that they are not due again at once."""
    heights, limit = step.stack.heights, step.limits.run_limit
    after = heights - taken + (step.changed + taken > 0)
    return (np.where(after > limit, heights - limit // 2, 0), after.astype(np.float64))


def _tiers(step: _Step, taken: Index) -> _Request:
    """Walk down each bin's stack while the runs are about as large as those above them."""
    least = step.limits.small_rows
    wanted = taken.copy()
    held = step.changed + step.stack.rows_above(taken)
    members = (held > 0).astype(np.int64)
    largest = np.maximum(held, least)
    walking = np.ones(len(taken), dtype=np.bool_)
    for place, size in enumerate(step.stack.by_place):
        here = walking & (place >= taken) & (size > 0)
        largest = np.where(here & (members == 0), np.maximum(largest, size), largest)
        joins = here & (size <= 2 * largest)
        walking &= joins | (place < taken)
        # Directly below a merge, a run that is not larger than its result joins it.
        along = joins & (wanted == place) & (wanted > taken) & (size <= held)
        members += joins
        held += np.where(joins, size, 0)
        largest = np.where(joins, np.maximum(largest, size), largest)
        full = along | (joins & (members >= step.limits.fan_out))
        # The merged runs are one member of the next tier.
        wanted[full] = place + 1
        members[full] = 1
        largest[full] = np.maximum(held, least)[full]
    return (wanted, (wanted - taken).astype(np.float64))


def _rotten(step: _Step, taken: Index) -> _Request:
    """Merge bins with too many dead rows down to the bottom."""
    # Assume that the runs absorbed anyway hold the changed keys; the next step corrects this.
    known = np.minimum(step.stack.rows_above(taken), step.changed)
    held = step.stack.rows.sum(axis=0) + step.changed - known
    dead = (held - step.live) / np.maximum(held, 1)
    return (np.where(dead > step.limits.dead_share, step.stack.heights, 0), dead)


def _sparse(step: _Step, taken: Index) -> _Request:
    """Merge bins down to runs of which little is still listed."""
    stack = step.stack
    missing = 1 - stack.shares[:, None]
    if stack.totals is not None:
        absorbed = np.where(stack.absorbed(taken), stack.rows, 0).sum(axis=1)
        missing += (absorbed / stack.totals)[:, None]
    sparse = (missing > 1 - step.limits.sparse_share) & stack.listed
    wanted = np.where(sparse, stack.places, taken).max(axis=0, initial=0)
    # The less is left of a run, the cheaper and the more worthwhile its removal.
    return (wanted, np.where(sparse, missing, 0).max(axis=0, initial=0))
