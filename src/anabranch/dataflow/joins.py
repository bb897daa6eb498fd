"""Joins as data: their sides, their kinds, and the names of what they keep."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

import msgspec

from anabranch.dataflow.durations import duration_us

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
"""Which sides' rows come out also without a partner."""

LeftJoinKind: TypeAlias = Literal["inner", "left"]

SIDE = "side"
"""The column of a join's input that says which side a row is of."""


class JoinSide(IntEnum):
    """A side of a join; the column ``SIDE`` has its value."""

    LEFT = 0
    RIGHT = 1

    @property
    def prefix(self) -> str:
        """What the names of its columns begin with in a join's input."""
        return "r_" if self else "l_"

    @property
    def title(self) -> str:
        """Its name, as users know it."""
        return self.name.lower()


OUTER_SIDES: dict[JoinKind, tuple[JoinSide, ...]] = {
    "inner": (),
    "left": (JoinSide.LEFT,),
    "right": (JoinSide.RIGHT,),
    "full": (JoinSide.LEFT, JoinSide.RIGHT),
}
"""The sides whose rows come out also without a partner."""


class Origin(msgspec.Struct, frozen=True):
    """Where an output column of a join comes from: a column of the key, a side or the window."""

    part: Literal["key", "left", "right", "window"]
    place: int


def side_state(operator: str, side: JoinSide) -> str:
    """The name of the state that has the rows of a side."""
    return f"{operator}.{side.title}"


def waiting_state(operator: str, side: JoinSide) -> str:
    """The name of the state that has the rows of a side which wait for their first match."""
    return f"{side_state(operator, side)}_waiting"


def join_bounds(within: object) -> tuple[int, int]:
    """The bounds of an interval join in microseconds: how far after a left row right ones may be.

    >>> join_bounds(("-1 minute", "1 hour"))
    (-60000000, 3600000000)
    """
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise TypeError(f"within is two durations, (lower, upper), not {within!r}")
    lower, upper = (duration_us("a bound of within", bound, least=None) for bound in within)
    return lower, upper
