"""The choice of the workers that stay or join when their number changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import TypeAlias

EXACT_CHOICES = 3000
"""Up to this many sets of workers, all are compared."""

Owners: TypeAlias = tuple[int, ...]
Worth: TypeAlias = Callable[[Sequence[int]], int]


def bins_worth(size: Sequence[int]) -> tuple[int, ...]:
    """The worth of leaving each bin in place: its bytes, and for equal bytes, one move fewer.

    >>> bins_worth([0, 10])
    (1, 31)
    """
    return tuple(each * (len(size) + 1) + 1 for each in size)


class KeptByCount:
    """The worth of what stays in place if a set of workers shares a region by number of bins.

    Each of *n* workers has at least ``floor`` bins, and ``extra`` of them one more. A worker keeps
    its most valuable bins, independently of the other workers. Only the extra bins depend on them:
    those go to the workers whose next bin is worth most.
    """

    def __init__(self, owners: Owners, worth: Sequence[int], count: int) -> None:
        self.floor, self.extra = divmod(len(owners), count)
        held: dict[int, list[int]] = {}
        for owner, value in zip(owners, worth, strict=True):
            held.setdefault(owner, []).append(value)
        self._always: dict[int, int] = {}
        self._next: dict[int, int] = {}
        for owner, values in held.items():
            values.sort(reverse=True)
            self._always[owner] = sum(values[: self.floor])
            self._next[owner] = values[self.floor] if len(values) > self.floor else 0

    def worth(self, workers: Sequence[int]) -> int:
        """The worth that these workers keep together."""
        following = sorted((self._next.get(worker, 0) for worker in workers), reverse=True)
        always = sum(self._always.get(worker, 0) for worker in workers)
        return always + sum(following[: self.extra])


def choose_members(
    candidates: Sequence[int], count: int, kept: Sequence[KeptByCount], others: Iterable[int]
) -> tuple[int, ...]:
    """The set of ``count`` workers that leaves most in place, over all regions.

    ``candidates`` own bins and may stay; ``others`` join them, in this order. The choice is exact
    for one region, and for several unless there are too many sets. Ties go to the lowest numbers.
    """
    staying = tuple(sorted(set(candidates)))
    if len(staying) <= count:
        return _add_others(staying, count, others)

    def worth(workers: Sequence[int]) -> int:
        return sum(each.worth(workers) for each in kept)

    if comb(len(staying), count) <= EXACT_CHOICES:
        return max(combinations(staying, count), key=worth)
    return _improve_by_swaps(_greedy(staying, count, worth), staying, worth)


def _add_others(staying: Sequence[int], count: int, others: Iterable[int]) -> tuple[int, ...]:
    """The workers that stay, filled up to ``count`` with others, each once."""
    found = set(staying)
    for worker in others:
        if len(found) >= count:
            break
        found.add(worker)
    return tuple(sorted(found))


def _greedy(staying: Sequence[int], count: int, worth: Worth) -> tuple[int, ...]:
    """Choose one worker after the other, always the one that adds most.

    For one region this is optimal: the worth kept is the value of an assignment of workers to
    places, for which greedy is exact. For several regions it is a good start.
    """
    chosen: tuple[int, ...] = ()
    while len(chosen) < count:
        left = [worker for worker in staying if worker not in chosen]
        chosen = max(((*chosen, worker) for worker in left), key=worth)
    return tuple(sorted(chosen))


def _improve_by_swaps(
    chosen: tuple[int, ...], staying: Sequence[int], worth: Worth
) -> tuple[int, ...]:
    """Swap one worker for another wherever that improves the set."""
    best = worth(chosen)
    for out in chosen:
        for worker in staying:
            if worker in chosen or out not in chosen:
                continue
            other = tuple(sorted((*(each for each in chosen if each != out), worker)))
            if worth(other) > best:
                chosen, best = other, worth(other)
    return chosen
