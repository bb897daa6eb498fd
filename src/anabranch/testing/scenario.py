"""What a simulated cluster runs: a dataflow, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.dataflow.flow import Dataflow

Row = tuple[Any, ...]

Positions = Mapping[str, Any]
"""Where sources stand, by their names, as JSON."""

Live = Mapping[str, Mapping[int, int]] | Callable[[Positions], Mapping[str, int]]
"""How many keys each state holds, by the steps that have read something or by positions."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to: rows by sink and step, and state by operator.

    Memory sinks, file sinks (but for Parquet) and recorders are shown. The rows of a step have no
    order.
    ``steps`` are those that have read something, one page of each source: a rescale takes steps
    without input. ``positions`` is where each source stood after each of them. With several
    sources it depends on the schedule which of their pages are read together.
    """

    output: Mapping[str, Mapping[int, list[Row]]]
    state: Mapping[str, list[dict[str, Any]]]
    steps: tuple[int, ...]
    positions: Mapping[int, Positions] = field(default_factory=dict)

    def check(self, sink: str, wanted: Mapping[int, Sequence[Row]]) -> None:
        """Raise ``AssertionError`` unless a sink has these rows, by step and in any order.

        R6 is broken if rows are missing or there once more, R9 if there are others.
        """
        found = self.output[sink]
        for step in sorted({*found, *wanted}):
            rows, others = sorted(found.get(step, ())), sorted(wanted.get(step, ()))
            rule = "R9" if {*rows} - {*others} else "R6"
            assert rows == others, f"{rule}: step {step} of sink {sink!r} has {rows}, not {others}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A dataflow to simulate, and the check of what came of it.

    ``make`` builds the dataflow; the directory is for what its sinks write, and is emptied before
    every schedule. Every source must end, and SQL be no more than ``plain_sql`` runs.
    ``check`` raises ``AssertionError`` when the outcome is wrong. Values above ``large_bytes`` are
    in files of their own, as giant ones are. ``live`` says how many keys (or entries) a state holds
    after so many steps that read something; as a function, it is given where the sources stand.
    ``sinks_away`` is the chance that a sink is away when a node opens it.
    """

    make: Callable[[Path], Dataflow]
    check: Callable[[Outcome], None]
    live: Live = field(default_factory=dict)
    workers: int = 3
    bins: int = 4
    large_bytes: int | None = None
    sinks_away: float = 0.0
