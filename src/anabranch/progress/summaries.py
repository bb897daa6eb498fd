"""Path summaries: how a path through the graph changes times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from anabranch.progress.change_batch import T


@dataclass(frozen=True, slots=True, order=True)
class Delay:
    """A path that adds a constant to every time. A negative one makes output lag behind its input.

    >>> Delay(5).after(10), Delay(-3).after(10)
    (15, 7)
    """

    by: int

    def after(self, time: T) -> T:
        """The earliest output time that input of a time allows.

        Without a delay every kind of time will do, else it must be one that can be added to.

        >>> ZERO.after("noon")
        'noon'
        """
        return time if not self.by else cast(T, time + self.by)  # type: ignore[operator]

    def followed_by(self, other: Delay) -> Delay:
        """This path, and another one behind it.

        >>> Delay(5).followed_by(Delay(-2))
        Delay(by=3)
        """
        return Delay(self.by + other.by)


ZERO = Delay(0)
