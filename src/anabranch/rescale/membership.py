"""Which workers stay when there are to be fewer, or join when there are to be more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import TypeAlias

EXACT_CHOICES = 3000
"""Up to so many sets of workers are all looked at."""

Owners: TypeAlias = tuple[int, ...]
Worth: TypeAlias = Callable[[Sequence[int]], int]


def weighed(size: Sequence[int]) -> tuple[int, ...]:
    """What it is worth to leave a bin where it is: its bytes; for equal bytes, one bin fewer moved.

    >>> weighed([0, 10])
    (1, 31)
    """
    return tuple(each * (len(size) + 1) + 1 for each in size)


class KeptByCount:
    """What of a region stays in place, by the set of workers that share it by number of bins.

    With *n* workers each has at least ``floor`` bins and ``extra`` of them one more. A worker
    keeps the bins that are worth most, so what it keeps does not depend on who the others are,
    but for the extra ones: these go to the workers whose next bin is worth most.
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
        """What these workers keep together."""
        following = sorted((self._next.get(worker, 0) for worker in workers), reverse=True)
        always = sum(self._always.get(worker, 0) for worker in workers)
        return always + sum(following[: self.extra])


def choose_members(
    candidates: Sequence[int], count: int, kept: Sequence[KeptByCount], others: Iterable[int]
) -> tuple[int, ...]:
    """The set of ``count`` workers that leaves most in place, in all regions together.

    ``candidates`` own something and may stay; ``others`` are who joins them, in this order. Exact
    for one region, and for several as long as there are not too many sets.
    Equal sets: the one with the lowest numbers.
    """
    staying = tuple(sorted(set(candidates)))
    if len(staying) <= count:
        return _with(staying, count, others)

    def worth(workers: Sequence[int]) -> int:
        return sum(each.worth(workers) for each in kept)

    if comb(len(staying), count) <= EXACT_CHOICES:
        return max(combinations(staying, count), key=worth)
    return _swapped(_greedy(staying, count, worth), staying, worth)


def _with(staying: Sequence[int], count: int, others: Iterable[int]) -> tuple[int, ...]:
    """As many workers as are asked for: those that stay, then others, each once."""
    found = set(staying)
    for worker in others:
        if len(found) >= count:
            break
        found.add(worker)
    return tuple(sorted(found))


def _greedy(staying: Sequence[int], count: int, worth: Worth) -> tuple[int, ...]:
    """One worker after the other, always the one that adds most.

    For one region this is the best set: what is kept is the value of an assignment of workers to
    places, and adding the best is exact for such values. For several regions it is a good start.
    """
    chosen: tuple[int, ...] = ()
    while len(chosen) < count:
        left = [worker for worker in staying if worker not in chosen]
        chosen = max(((*chosen, worker) for worker in left), key=worth)
    return tuple(sorted(chosen))


def _swapped(chosen: tuple[int, ...], staying: Sequence[int], worth: Worth) -> tuple[int, ...]:
    """The set after all exchanges of one worker for another that make it better."""
    best = worth(chosen)
    for out in chosen:
        for worker in staying:
            if worker in chosen or out not in chosen:
                continue
            other = tuple(sorted((*(each for each in chosen if each != out), worker)))
            if worth(other) > best:
                chosen, best = other, worth(other)
    return chosen
