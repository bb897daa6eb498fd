"""How event time travels through a dataflow: where it comes in, and which operators it reaches."""

from __future__ import annotations

import msgspec


class TimedInput(msgspec.Struct, frozen=True):
    """Where rows of a source get their times. Its name is the source's, numbered if there are more.

    ``timed`` is False for rows without times: their frontier is at the beginning until the source
    has ended. ``lateness_us`` is how far rows may be behind the latest one of their partition.
    ``idle_us`` is after how long without rows a partition holds nothing back; None is never.
    """

    name: str
    source: str
    timed: bool
    lateness_us: int = 0
    idle_us: int | None = None


class GraphOperator(msgspec.Struct, frozen=True):
    """A stateful operator and what is directly upstream: names of inputs and of operators.

    ``lag_us`` is how far behind its own frontier the times of its output may be.
    """

    name: str
    region: str
    inputs: tuple[str, ...]
    lag_us: int = 0


class TimeGraph(msgspec.Struct, frozen=True):
    """The inputs, and the operators in graph order. Empty if nothing in the dataflow needs time."""

    inputs: tuple[TimedInput, ...] = ()
    operators: tuple[GraphOperator, ...] = ()
