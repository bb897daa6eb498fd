"""What a simulated cluster runs: a dataflow, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.dataflow.flow import Dataflow

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to: rows by sink and step, and state by operator.

    Only memory sinks and file sinks of JSON lines are shown. The rows of a step have no order.
    ``steps`` are those that have read something, one page each: a rescale takes steps without
    input.
    """

    output: Mapping[str, Mapping[int, list[Row]]]
    state: Mapping[str, list[dict[str, Any]]]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A dataflow to simulate, and the check of what came of it.

    ``make`` builds the dataflow; the directory is for what its sinks write. Every source must be a
    ``ScriptedSource`` that ends, every expression the name of a column. ``check`` raises
    ``AssertionError`` when the outcome is wrong. Values above ``large_bytes`` are in files of their
    own, as giant ones are. ``live`` says how many keys an operator holds
    after so many pages, where that is known.
    """

    make: Callable[[Path], Dataflow]
    check: Callable[[Outcome], None]
    live: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    workers: int = 3
    bins: int = 4
    large_bytes: int | None = None
