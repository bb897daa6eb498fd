"""Signed counts of times: the currency in which progress is exchanged."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar


class Time(Hashable, Protocol):
    """A point in time: hashable, and ``a <= b`` says that ``a`` is at or before ``b``.

    The order may be partial: of two times, neither need be before the other.
    """

    def __le__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - of its own type


T = TypeVar("T", bound=Time)

Change: TypeAlias = tuple[T, int]


class ChangeBatch(Generic[T]):
    """Changes of counts by time. Changes that cancel leave nothing behind.

    >>> changes = ChangeBatch([(3, 1), (5, 2)])
    >>> changes.update(3, -1)
    >>> list(changes)
    [(5, 2)]
    """

    __slots__ = ("_counts",)

    def __init__(self, changes: Iterable[Change[T]] = ()) -> None:
        """Begin with these changes."""
        self._counts: dict[T, int] = {}
        self.extend(changes)

    def update(self, time: T, change: int) -> None:
        """Add to the count of a time.

        >>> changes = ChangeBatch()
        >>> changes.update(4, 1)
        >>> changes.update(4, 1)
        >>> list(changes)
        [(4, 2)]
        """
        count = self._counts.get(time, 0) + change
        if count:
            self._counts[time] = count
        else:
            self._counts.pop(time, None)

    def extend(self, changes: Iterable[Change[T]]) -> None:
        """Add many changes.

        >>> changes = ChangeBatch([(1, 1)])
        >>> changes.extend([(1, -1), (2, 1)])
        >>> list(changes)
        [(2, 1)]
        """
        for time, change in changes:
            self.update(time, change)

    def drain(self) -> list[Change[T]]:
        """Take all changes out.

        >>> changes = ChangeBatch([(1, 1)])
        >>> changes.drain(), changes.drain()
        ([(1, 1)], [])
        """
        counts, self._counts = self._counts, {}
        return list(counts.items())

    def __iter__(self) -> Iterator[Change[T]]:
        """Iterate over the times whose count differs from zero."""
        return iter(self._counts.items())

    def __len__(self) -> int:
        """The number of times whose count differs from zero.

        >>> len(ChangeBatch([(1, 1), (1, -1), (2, 1)]))
        1
        """
        return len(self._counts)

    def __repr__(self) -> str:
        """The changes.

        >>> ChangeBatch([(7, -1)])
        ChangeBatch([(7, -1)])
        """
        return f"ChangeBatch({list(self)})"
