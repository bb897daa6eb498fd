"""Frontiers: the least times that may still come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic

from anabranch.progress.change_batch import Change, ChangeBatch, T


class Antichain(Generic[T]):
    """A set of times of which none is before another: the lower bound of what may still come.

    A later time adds nothing and is left out. An empty antichain is the end of time: nothing comes
    any more.

    >>> Antichain([5, 3, 8])
    Antichain([3])
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[T] = ()) -> None:
        """Keep the least of these times."""
        self._elements: list[T] = []
        for element in elements:
            self.insert(element)

    def insert(self, time: T) -> bool:
        """Add a time unless one at or before it is there; whether that changed anything.

        >>> frontier = Antichain([3])
        >>> frontier.insert(4), frontier.insert(2), frontier
        (False, True, Antichain([2]))
        """
        if self.less_equal(time):
            return False
        self._elements = [held for held in self._elements if not time <= held]
        self._elements.append(time)
        return True

    def less_equal(self, time: T) -> bool:
        """Whether a time may still come: some element is at or before it.

        >>> Antichain([3]).less_equal(3), Antichain([3]).less_equal(2), Antichain().less_equal(9)
        (True, False, False)
        """
        return any(element <= time for element in self._elements)

    def less_than(self, time: T) -> bool:
        """Whether an earlier time may still come: some element is before this one.

        >>> Antichain([3]).less_than(4), Antichain([3]).less_than(3)
        (True, False)
        """
        return any(element <= time and element != time for element in self._elements)

    def dominates(self, other: Antichain[T]) -> bool:
        """Whether every element of the other is at or after one of this: it is no further back.

        >>> Antichain([3]).dominates(Antichain([5])), Antichain([5]).dominates(Antichain([3]))
        (True, False)
        >>> Antichain([3]).dominates(Antichain())
        True
        """
        return all(self.less_equal(time) for time in other)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the elements, in the order in which they came."""
        return iter(tuple(self._elements))

    def __len__(self) -> int:
        """The number of elements. Zero, and so false, is the end of time.

        >>> bool(Antichain([1])), bool(Antichain())
        (True, False)
        """
        return len(self._elements)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same elements, in any order."""
        if not isinstance(other, Antichain):
            return NotImplemented
        return set(self) == set(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        """The elements."""
        return f"Antichain({self._elements})"


class MutableAntichain(Generic[T]):
    """A multiset of times, and the antichain of those whose count is positive.

    A count may be negative for a while: a decrement can arrive before its increment.

    >>> held = MutableAntichain([3, 3, 5])
    >>> held.update([(3, -1)])
    []
    >>> held.update([(3, -1)])
    [(3, -1), (5, 1)]
    >>> held.frontier()
    Antichain([5])
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self, elements: Iterable[T] = ()) -> None:
        """Begin with these times, each counted as often as it is given."""
        self._counts: dict[T, int] = {}
        self._frontier: Antichain[T] = Antichain()
        self.update((element, 1) for element in elements)

    def update(self, changes: Iterable[Change[T]]) -> list[Change[T]]:
        """Add changes to the counts; how the frontier changed by them, as changes too.

        >>> held = MutableAntichain()
        >>> held.update([(4, 1)]), held.update([(2, 1)])
        ([(4, 1)], [(4, -1), (2, 1)])
        """
        stale = False
        for time, change in changes:
            before = self._counts.get(time, 0)
            after = before + change
            if after:
                self._counts[time] = after
            else:
                self._counts.pop(time, None)
            if (before > 0) != (after > 0):
                stale = stale or (not self._frontier.less_equal(time) if after > 0 else True)
        return self._rebuild() if stale else []

    def _rebuild(self) -> list[Change[T]]:
        before = self._frontier
        self._frontier = Antichain(time for time, count in self._counts.items() if count > 0)
        changes = ChangeBatch((time, -1) for time in before)
        changes.extend((time, 1) for time in self._frontier)
        return changes.drain()

    def frontier(self) -> Antichain[T]:
        """The least times whose count is positive.

        >>> MutableAntichain([7, 4]).frontier()
        Antichain([4])
        """
        return Antichain(self._frontier)

    def less_equal(self, time: T) -> bool:
        """Whether a counted time is at or before this one.

        >>> MutableAntichain([3]).less_equal(3), MutableAntichain([3]).less_equal(2)
        (True, False)
        """
        return self._frontier.less_equal(time)

    def less_than(self, time: T) -> bool:
        """Whether a counted time is before this one.

        >>> MutableAntichain([3]).less_than(3), MutableAntichain([3]).less_than(4)
        (False, True)
        """
        return self._frontier.less_than(time)

    def count(self, time: T) -> int:
        """How often a time is counted.

        >>> MutableAntichain([3, 3]).count(3), MutableAntichain([3, 3]).count(4)
        (2, 0)
        """
        return self._counts.get(time, 0)

    def __iter__(self) -> Iterator[Change[T]]:
        """Iterate over times and their counts."""
        return iter(tuple(self._counts.items()))

    def __len__(self) -> int:
        """The number of times whose count differs from zero.

        >>> len(MutableAntichain([3, 3, 5]))
        2
        """
        return len(self._counts)
