"""Holds: the times of the output that an operator may still make of its pending state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anabranch.operators.order.row_order import Int64s
from anabranch.runs.due import NEVER


def earliest_holds(dues: Sequence[Int64s]) -> Int64s:
    """The hold of each bin, given when the next entry of each state falls due there.

    A bin without any has ``NEVER``.

    >>> earliest_holds([np.array([5, NEVER]), np.array([9, NEVER])]).tolist() == [4, NEVER]
    True
    """
    least: Int64s = np.minimum.reduce(list(dues))
    return np.where(least < NEVER, least - 1, NEVER)
