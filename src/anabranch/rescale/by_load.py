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
from dataclasses import dataclass
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
    task = _Balancing(owners, bins_worth(size), weight, members, limit)
    relieved = (task.fill_members(task.relieve(price)) for price in _PRICES)
    spread = task.relabel(_spread(weight, members))
    found = [
        task.undo_needless_moves(each)
        for each in (*relieved, spread)
        if max(_loads(each, weight, members).values()) <= limit
    ]
    best = min(found, key=task.cost)
    return best if len(owners) > EXACT_BINS else _Search(task, best).run()


def _loads(
    owners: Sequence[int], weight: Sequence[float], members: Sequence[int]
) -> dict[int, float]:
    found = dict.fromkeys(members, 0.0)
    for number, owner in enumerate(owners):
        found[owner] = found.get(owner, 0.0) + weight[number]
    return found


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


def _by_ratio(worth: int, weight: float, excess: float) -> float:
    return worth / min(weight, excess)


def _by_worth(worth: int, weight: float, excess: float) -> float:
    return worth


def _by_fit(worth: int, weight: float, excess: float) -> float:
    """Prefer the bin that just suffices, else the heaviest."""
    return weight - excess if weight >= excess else 1 / weight + 1e300


_PRICES: tuple[Price, ...] = (_by_ratio, _by_worth, _by_fit)


@dataclass(frozen=True, slots=True)
class _Balancing:
    """What is to be balanced: each bin's owner, worth and weight, and the limit of a member."""

    owners: Owners
    worth: Sequence[int]
    weight: Sequence[float]
    members: Sequence[int]
    limit: float

    def cost(self, other: Owners) -> int:
        """The worth of the bins that another assignment moves."""
        moved = zip(self.worth, self.owners, other, strict=True)
        return sum(worth for worth, now, then in moved if now != then)

    def relabel(self, other: Owners) -> Owners:
        """Give each share to the member that already owns most of it."""
        common: Counter[tuple[int, int]] = Counter()
        for number, (now, then) in enumerate(zip(self.owners, other, strict=True)):
            if now in self.members:
                common[then, now] += self.worth[number]
        names: dict[int, int] = {}
        for (share, worker), _ in sorted(common.items(), key=lambda each: (-each[1], each[0])):
            if share not in names and worker not in names.values():
                names[share] = worker
        free = [worker for worker in self.members if worker not in names.values()]
        for share in self.members:
            if share not in names:
                names[share] = free.pop(0)
        return tuple(names[each] for each in other)

    def relieve(self, price: Price) -> Owners:
        """Move bins away from members above the limit, the cheapest first, while they fit."""
        weight, members, found = self.weight, self.members, list(self.owners)
        busy = _loads(found, weight, members)
        homeless = [number for number, owner in enumerate(found) if owner not in members]
        for number in sorted(homeless, key=lambda each: (-weight[each], each)):
            worker = min(members, key=lambda w: (busy[w], w))
            found[number] = worker
            busy[worker] += weight[number]
        while True:
            worker = max(members, key=lambda w: (busy[w], -w))
            excess = busy[worker] - self.limit
            least = min(members, key=lambda w: (busy[w], w))
            fitting = [
                number
                for number, owner in enumerate(found)
                if owner == worker and 0 < weight[number] <= self.limit - busy[least]
            ]
            if excess <= 0 or not fitting:
                return tuple(found)
            prices = {n: price(self.worth[n], weight[n], excess) for n in fitting}
            number = min(fitting, key=lambda n: (prices[n], -weight[n], n))
            found[number] = least
            busy[worker] -= weight[number]
            busy[least] += weight[number]

    def fill_members(self, found: Owners) -> Owners:
        """Give every member a bin of those with several: one that moves anyway, or a cheap one."""
        result, have = list(found), Counter(found)
        for worker in self.members:
            spare = [number for number, owner in enumerate(result) if have[owner] > 1]
            if have[worker] or not spare:
                continue
            prices = {n: self.worth[n] if result[n] == self.owners[n] else 0 for n in spare}
            number = min(spare, key=lambda n: (prices[n], n))
            have[result[number]] -= 1
            have[worker] += 1
            result[number] = worker
        return tuple(result)

    def undo_needless_moves(self, found: Owners) -> Owners:
        """Undo every needless move, the most expensive first."""
        result, have, weight = list(found), Counter(found), self.weight
        busy = _loads(found, weight, self.members)
        owned = enumerate(self.owners)
        moved = (n for n, owner in owned if owner in self.members and found[n] != owner)
        for number in sorted(moved, key=lambda each: (-self.worth[each], each)):
            owner, worker = self.owners[number], result[number]
            needed = have[worker] == 1 and have[owner] > 0
            if not needed and busy[owner] + weight[number] <= self.limit:
                busy[worker] -= weight[number]
                busy[owner] += weight[number]
                have[worker] -= 1
                have[owner] += 1
                result[number] = owner
        return tuple(result)


class _Search:
    """A depth-first search for assignments within the limit that are cheaper than the best known.

    Every member gets a bin, or with fewer bins than members, every bin a member of its own.
    """

    def __init__(self, task: _Balancing, best: Owners) -> None:
        self._task = task
        self._best, self._best_cost = best, task.cost(best)
        # Decide the most expensive bins first, to prune early.
        self._order = sorted(range(len(best)), key=lambda each: (-task.worth[each], each))
        self._busy = dict.fromkeys(task.members, 0.0)
        self._have = dict.fromkeys(task.members, 0)
        self._lacking = min(len(task.members), len(best))
        self._found = list(best)
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
        task, number = self._task, self._order[depth]
        home, weight = task.owners[number], task.weight[number]
        for worker in sorted(task.members, key=lambda w: (w != home, self._busy[w], w)):
            load, first = self._busy[worker], not self._have[worker]
            if load + weight > task.limit:
                continue
            self._busy[worker] = load + weight
            self._have[worker] += 1
            self._lacking -= first
            self._found[number] = worker
            self._visit(depth + 1, cost + (0 if worker == home else task.worth[number]))
            self._busy[worker] = load
            self._have[worker] -= 1
            self._lacking += first
