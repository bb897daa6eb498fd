"""Tumbling and sliding windows as panes: the pieces that all windows are made of.

A pane is as long as the greatest common divisor of a window's length and its period, so that each
window is a whole number of panes and each row is kept once, however many windows it counts for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anabranch.operators.order.row_order import Int64s


@dataclass(frozen=True, slots=True)
class Panes:
    """Windows of one length that begin every so often; a window holds its start, not its end.

    ``every`` is at most ``length``: each time is in a window. For tumbling windows they are equal.

    >>> sliding = Panes(length=10, every=4)
    >>> sliding.pane, sliding.pane_of(np.array([-1, 0, 5])).tolist()
    (2, [-2, 0, 4])
    """

    length: int
    every: int
    offset: int = 0

    @property
    def pane(self) -> int:
        """The length of a pane."""
        return math.gcd(self.length, self.every)

    def pane_of(self, times: Int64s) -> Int64s:
        """The start of the pane that each time is in."""
        return _floor(times, self.pane, self.offset)

    def last_end(self, panes: Int64s) -> Int64s:
        """The end of the last window that each pane counts for: nobody needs the pane after it.

        >>> Panes(length=10, every=4).last_end(np.array([0, 2, 4])).tolist()
        [10, 10, 14]
        """
        return _floor(panes, self.every, self.offset) + self.length

    def first_end(self, panes: Int64s) -> Int64s:
        """The end of the first window that each pane counts for.

        >>> Panes(length=10, every=4).first_end(np.array([0, 2, 4])).tolist()
        [2, 6, 6]
        """
        after = panes + self.pane - self.length
        return -_floor(-after, self.every, -self.offset) + self.length

    def earliest_end(self, last_ends: Int64s, frontier: int) -> Int64s:
        """The end of the first window after the frontier that a pane with this last end may be in.

        Never too late. Too early only where several panes have one last end, and the first of them
        is missing.

        >>> Panes(length=10, every=4).earliest_end(np.array([10, 14]), 3).tolist()
        [6, 6]
        """
        return np.maximum(self.first_end(last_ends - self.length), self.first_end_after(frontier))

    def closing(self, panes: Int64s, since: int, frontier: int) -> tuple[Int64s, Int64s]:
        """The windows that close as the frontier moves from ``since`` to ``frontier``.

        One entry for each pane in each such window: the place of the pane among ``panes``, and the
        end of the window. A window closes when its end is at or before the frontier.

        >>> places, ends = Panes(length=10, every=4).closing(np.array([0, 4]), 5, 12)
        >>> list(zip(places.tolist(), ends.tolist()))
        [(0, 6), (0, 10), (1, 6), (1, 10)]
        """
        first, counts = self._spans(panes, since, frontier)
        places = np.repeat(np.arange(len(panes), dtype=np.int64), counts)
        begun = np.repeat(np.cumsum(counts) - counts, counts)
        nth = np.arange(len(places), dtype=np.int64) - begun
        return places, first[places] + nth * self.every

    def closing_counts(self, panes: Int64s, since: int, frontier: int) -> Int64s:
        """For how many of the windows that then close each pane counts."""
        return self._spans(panes, since, frontier)[1]

    def _spans(self, panes: Int64s, since: int, frontier: int) -> tuple[Int64s, Int64s]:
        """The end of the first such window of each pane, and the number of windows."""
        first = np.maximum(self.first_end(panes), self.first_end_after(since))
        last = np.minimum(self.last_end(panes), self.last_end_until(frontier))
        return first, np.maximum((last - first) // self.every + 1, 0)

    def last_end_until(self, time: int) -> int:
        """The end of the last window that ends at or before a time.

        >>> Panes(length=10, every=4).last_end_until(13)
        10
        """
        first = self.offset + self.length
        return (time - first) // self.every * self.every + first

    def first_end_after(self, time: int) -> int:
        """The end of the first window that ends after a time."""
        return self.last_end_until(time) + self.every


def _floor(times: Int64s, unit: int, offset: int) -> Int64s:
    floored: Int64s = (times - offset) // unit * unit + offset
    return floored
