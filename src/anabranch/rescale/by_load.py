"""Equal load, with few bytes moved.

That no worker has more than a limit is easy to say and hard to reach with the fewest bytes: it is
bin packing. Few bins are searched through; with many, a greedy choice is repaired, which is near
the best because there are many small bins to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from anabranch.rescale.membership import Owners, weighed

TOLERANCE = 0.1
"""How much more than the average a worker may have."""

EXACT_BINS = 20
EXACT_NODES = 30_000
_ROUNDING = 1e-9

Price: TypeAlias = Callable[[int, float, float], float]
"""What it costs to move a bin of some worth and weight away from a worker with some excess."""


def load_limit(weight: Sequence[float], workers: int) -> float:
    """What no worker should exceed: a tenth above the average, if that can be reached.

    It cannot where one bin alone is heavier, nor, sometimes, where bins are few; then it is what
    is reached by giving each bin, the heaviest first, to whoever has least.

    >>> load_limit([1.0, 1.0, 1.0], 2)
    2.0
    """
    average = sum(weight) / workers
    bound = (1 + TOLERANCE) * max(average, max(weight, default=0.0))
    spread = _spread(weight, range(workers))
    reached = max(_loads(spread, weight, range(workers)).values())
    return max(bound, reached)


def by_load(
    owners: Owners, size: Sequence[int], weight: Sequence[float], members: Sequence[int]
) -> Owners:
    """The owners with no member above the limit; an assignment that keeps it stays as it is.

    >>> by_load((0, 0, 0, 1), [9, 1, 1, 1], [1.0, 1.0, 1.0, 1.0], (0, 1))
    (0, 1, 0, 1)
    """
    members = sorted(members)
    limit = load_limit(weight, len(members)) * (1 + _ROUNDING)
    worth = weighed(size)
    found = [
        _returned(owners, each, worth, weight, members, limit)
        for each in (
            *(_relieved(owners, worth, weight, members, limit, price) for price in _PRICES),
            _relabelled(owners, _spread(weight, members), worth, members),
        )
        if max(_loads(each, weight, members).values()) <= limit
    ]
    best = min(found, key=lambda each: _moved(owners, each, worth))
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


def _moved(owners: Owners, other: Owners, worth: Sequence[int]) -> int:
    return sum(w for w, a, b in zip(worth, owners, other, strict=True) if a != b)


def _spread(weight: Sequence[float], members: Sequence[int]) -> Owners:
    """Each bin, the heaviest first, to the member that has least."""
    busy = dict.fromkeys(members, 0.0)
    found = [0] * len(weight)
    for number in sorted(range(len(weight)), key=lambda each: (-weight[each], each)):
        worker = min(busy, key=lambda w: (busy[w], w))
        found[number] = worker
        busy[worker] += weight[number]
    return tuple(found)


def _relabelled(
    owners: Owners, other: Owners, worth: Sequence[int], members: Sequence[int]
) -> Owners:
    """The same shares, given to the members that have most of them already."""
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
    """The one that is just enough, else the heaviest."""
    return weight - excess if weight >= excess else 1 / weight + 1e300


_PRICES: tuple[Price, ...] = (_by_ratio, _by_worth, _by_fit)


def _relieved(
    owners: Owners,
    worth: Sequence[int],
    weight: Sequence[float],
    members: Sequence[int],
    limit: float,
    price: Price,
) -> Owners:
    """Move bins away from whoever is above the limit, the cheapest relief first, while they fit."""
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


def _returned(
    owners: Owners,
    found: Owners,
    worth: Sequence[int],
    weight: Sequence[float],
    members: Sequence[int],
    limit: float,
) -> Owners:
    """Take back every move that the limit does not need, the most expensive first."""
    result = list(found)
    busy = _loads(found, weight, members)
    moved = (n for n, owner in enumerate(owners) if owner in members and found[n] != owner)
    for number in sorted(moved, key=lambda each: (-worth[each], each)):
        owner = owners[number]
        if busy[owner] + weight[number] <= limit:
            busy[result[number]] -= weight[number]
            busy[owner] += weight[number]
            result[number] = owner
    return tuple(result)


class _Search:
    """All assignments within the limit that are cheaper than the best known, depth first."""

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
        self._best, self._best_cost = best, _moved(owners, best, worth)
        # What costs most is decided first, so that dear branches are left early.
        self._order = sorted(range(len(owners)), key=lambda each: (-worth[each], each))
        self._busy = dict.fromkeys(members, 0.0)
        self._found = list(owners)
        self._nodes = 0

    def run(self) -> Owners:
        """The cheapest, or the best that was found when the search was given up."""
        self._visit(0, 0)
        return self._best

    def _visit(self, depth: int, cost: int) -> None:
        self._nodes += 1
        if cost >= self._best_cost or self._nodes > EXACT_NODES:
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
            self._busy[worker] = load + self._weight[number]
            self._found[number] = worker
            self._visit(depth + 1, cost + (0 if stays else self._worth[number]))
            self._busy[worker] = load
