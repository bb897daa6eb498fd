"""Balancing by load, with few bytes moved.

Keeping every worker below a limit with the fewest bytes moved is bin packing. Few bins are searched
exhaustively. With many, a greedy choice is improved; it is near the optimum, because there are many
small bins to choose from.

A bin that exceeds the limit alone is *hot*: its worker gets no other load, and the limit is that of
the other bins on the other workers. A hot bin weighs as much as the limit, so that nothing fits
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from anabranch.rescale.membership import Owners, bins_worth

TOLERANCE = 0.1
"""By what share a worker may exceed the average."""

EXACT_BINS = 20
EXACT_NODES = 30_000
_ROUNDING = 1e-9

Price: TypeAlias = Callable[[int, float, float], float]
"""The price of moving a bin of this worth and weight away from a worker with this excess."""


def hot_bins(weight: Sequence[float], workers: int) -> frozenset[int]:
    """The bins more than a tenth above a fair share of the load, hotter bins left out.

    >>> sorted(hot_bins([10.0, 2.0, 0.5, 0.5], 3))
    [0, 1]
    """
    left, sharing = sum(weight), workers
    found = set()
    for number in sorted(range(len(weight)), key=lambda each: (-weight[each], each)):
        # The last worker gets the rest, so nothing exceeds its share.
        if sharing == 1 or weight[number] <= (1 + TOLERANCE) * left / sharing:
            break
        found.add(number)
        left, sharing = left - weight[number], sharing - 1
    return frozenset(found)


def load_limit(weight: Sequence[float], workers: int) -> float:
    """The load limit of workers without a hot bin: a tenth above their average.

    With few bins that may be unreachable; then it is what a greedy spread reaches: each bin, the
    heaviest first, goes to the worker with the least load.

    >>> load_limit([1.0, 1.0, 1.0], 2)
    2.0
    >>> load_limit([10.0, 1.0, 1.0], 3)
    1.1
    """
    hot = hot_bins(weight, workers)
    others = [each for number, each in enumerate(weight) if number not in hot]
    sharing = range(workers - len(hot))
    bound = (1 + TOLERANCE) * sum(others) / len(sharing)
    return max(bound, *_loads(_spread(others, sharing), others, sharing).values())


def by_load(
    owners: Owners, size: Sequence[int], weight: Sequence[float], members: Sequence[int]
) -> Owners:
    """Assign hot bins apart, no other member above the limit, and a bin to every member.

    An assignment that meets this stays as it is. With fewer bins than members, each bin gets a
    member of its own.

    >>> by_load((0, 0, 0, 1), [9, 1, 1, 1], [1.0, 1.0, 1.0, 1.0], (0, 1))
    (0, 1, 0, 1)
    """
    members = sorted(members)
    workers = min(len(members), len(owners))
    # If hot bins have all the load, any limit keeps them apart.
    limit, hot = load_limit(weight, workers) or 1.0, hot_bins(weight, workers)
    limit *= 1 + _ROUNDING
    weight = [limit if number in hot else each for number, each in enumerate(weight)]
    worth = bins_worth(size)
    relieved = [_relieve(owners, worth, weight, members, limit, price) for price in _PRICES]
    spread = _relabel(owners, _spread(weight, members), worth, members)
    found = [
        _undo_needless_moves(owners, each, worth, weight, members, limit)
        for each in (*(_fill_members(owners, each, worth, members) for each in relieved), spread)
        if max(_loads(each, weight, members).values()) <= limit
    ]
    best = min(found, key=lambda each: _worth_moved(owners, each, worth))
    if len(owners) > EXACT_BINS:
        return best
    return _Search(owners, worth, weight, members, limit, best).run()


def _loads(
    owners: Sequence[int], weight: Sequence[float], members: Sequence[int]
) -> dict[int, float]:
    found = dict.fromkeys(members, 0.0)
    for number, owner in enumerate(owners):
        found[owner] = found.get(owner, 0.0) + weight[number]
    return found


def _worth_moved(owners: Owners, other: Owners, worth: Sequence[int]) -> int:
    return sum(w for w, a, b in zip(worth, owners, other, strict=True) if a != b)


def _spread(weight: Sequence[float], members: Sequence[int]) -> Owners:
    """Give each bin, the heaviest first, to the member with the least load, then fewest bins."""
    busy = dict.fromkeys(members, 0.0)
    have = dict.fromkeys(members, 0)
    found = [0] * len(weight)
    for number in sorted(range(len(weight)), key=lambda each: (-weight[each], each)):
        worker = min(busy, key=lambda w: (busy[w], have[w], w))
        found[number] = worker
        busy[worker] += weight[number]
        have[worker] += 1
    return tuple(found)


def _relabel(owners: Owners, other: Owners, worth: Sequence[int], members: Sequence[int]) -> Owners:
    """Give each share to the member that already owns most of it."""
    common: dict[tuple[int, int], int] = {}
    for number, (now, then) in enumerate(zip(owners, other, strict=True)):
        if now in members:
            common[then, now] = common.get((then, now), 0) + worth[number]
    names: dict[int, int] = {}
    for (share, worker), _ in sorted(common.items(), key=lambda each: (-each[1], each[0])):
        if share not in names and worker not in names.values():
            names[share] = worker
    free = [worker for worker in members if worker not in names.values()]
    for share in members:
        if share not in names:
            names[share] = free.pop(0)
    return tuple(names[each] for each in other)


def _by_ratio(worth: int, weight: float, excess: float) -> float:
    return worth / min(weight, excess)


def _by_worth(worth: int, weight: float, excess: float) -> float:
    return worth


def _by_fit(worth: int, weight: float, excess: float) -> float:
    """Prefer the bin that just suffices, else the heaviest."""
    return weight - excess if weight >= excess else 1 / weight + 1e300


_PRICES: tuple[Price, ...] = (_by_ratio, _by_worth, _by_fit)


def _relieve(
    owners: Owners,
    worth: Sequence[int],
    weight: Sequence[float],
    members: Sequence[int],
    limit: float,
    price: Price,
) -> Owners:
    """Move bins away from members above the limit, the cheapest first, while they fit."""
    found = list(owners)
    busy = _loads(owners, weight, members)
    homeless = [number for number, owner in enumerate(owners) if owner not in members]
    for number in sorted(homeless, key=lambda each: (-weight[each], each)):
        worker = min(members, key=lambda w: (busy[w], w))
        found[number] = worker
        busy[worker] += weight[number]
    while True:
        worker = max(members, key=lambda w: (busy[w], -w))
        excess = busy[worker] - limit
        least = min(members, key=lambda w: (busy[w], w))
        fitting = [
            number
            for number, owner in enumerate(found)
            if owner == worker and 0 < weight[number] <= limit - busy[least]
        ]
        if excess <= 0 or not fitting:
            return tuple(found)
        number = min(fitting, key=lambda n: (price(worth[n], weight[n], excess), -weight[n], n))
        found[number] = least
        busy[worker] -= weight[number]
        busy[least] += weight[number]


def _fill_members(
    owners: Owners, found: Owners, worth: Sequence[int], members: Sequence[int]
) -> Owners:
    """Give every member a bin, from members with several: one that moves anyway, or a cheap one."""
    result, have = list(found), Counter(found)
    for worker in members:
        spare = [number for number, owner in enumerate(result) if have[owner] > 1]
        if have[worker] or not spare:
            continue
        number = min(spare, key=lambda n: (worth[n] if result[n] == owners[n] else 0, n))
        have.subtract([result[number]])
        have.update([worker])
        result[number] = worker
    return tuple(result)


def _undo_needless_moves(
    owners: Owners,
    found: Owners,
    worth: Sequence[int],
    weight: Sequence[float],
    members: Sequence[int],
    limit: float,
) -> Owners:
    """Undo every needless move, the most expensive first."""
    result, have = list(found), Counter(found)
    busy = _loads(found, weight, members)
    moved = (n for n, owner in enumerate(owners) if owner in members and found[n] != owner)
    for number in sorted(moved, key=lambda each: (-worth[each], each)):
        owner, worker = owners[number], result[number]
        needed = have[worker] == 1 and have[owner] > 0
        if not needed and busy[owner] + weight[number] <= limit:
            busy[worker] -= weight[number]
            busy[owner] += weight[number]
            have.subtract([worker])
            have.update([owner])
            result[number] = owner
    return tuple(result)


class _Search:
    """A depth-first search for assignments within the limit that are cheaper than the best known.

    Every member gets a bin, or with fewer bins than members, every bin a member of its own.
    """

    def __init__(
        self,
        owners: Owners,
        worth: Sequence[int],
        weight: Sequence[float],
        members: Sequence[int],
        limit: float,
        best: Owners,
    ) -> None:
        self._owners, self._worth, self._weight = owners, worth, weight
        self._members, self._limit = members, limit
        self._best, self._best_cost = best, _worth_moved(owners, best, worth)
        # Decide the most expensive bins first, to prune early.
        self._order = sorted(range(len(owners)), key=lambda each: (-worth[each], each))
        self._busy = dict.fromkeys(members, 0.0)
        self._have = dict.fromkeys(members, 0)
        self._lacking = min(len(members), len(owners))
        self._found = list(owners)
        self._nodes = 0

    def run(self) -> Owners:
        """The cheapest assignment, or the best found within ``EXACT_NODES``."""
        self._visit(0, 0)
        return self._best

    def _visit(self, depth: int, cost: int) -> None:
        self._nodes += 1
        if cost >= self._best_cost or self._nodes > EXACT_NODES:
            return
        if self._lacking > len(self._order) - depth:
            return
        if depth == len(self._order):
            self._best, self._best_cost = tuple(self._found), cost
            return
        number = self._order[depth]
        home = self._owners[number]
        for worker in sorted(self._members, key=lambda w: (w != home, self._busy[w], w)):
            load = self._busy[worker]
            stays = worker == home
            if load + self._weight[number] > self._limit:
                continue
            first = not self._have[worker]
            self._busy[worker] = load + self._weight[number]
            self._have[worker] += 1
            self._lacking -= first
            self._found[number] = worker
            self._visit(depth + 1, cost + (0 if stays else self._worth[number]))
            self._busy[worker] = load
            self._have[worker] -= 1
            self._lacking += first
