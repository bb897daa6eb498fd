"""Tumbling windows in a row of operators, in a few lines: what frontiers are for.

Each operator has bins, each bin open windows with the rows in them. A step shows an operator the
rows that operators before it fired, then its frontier, then its own rows, as the real ones do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.messages import PendingTimes
from anabranch.protocol.time_graph import TimeGraph

LENGTH = 2
"""How long the windows of all operators are."""


class Row(NamedTuple):
    """A row: its number, its time, its bin, and where it comes in."""

    number: int
    time: int
    bin: int
    input: str


class Window(NamedTuple):
    """An open window of a bin, with the numbers of the rows in it."""

    operator: str
    bin: int
    end: int
    rows: tuple[int, ...]


class Fired(NamedTuple):
    """The rows of a window that has closed, with the time of the result."""

    operator: str
    bin: int
    time: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """What a step made: the windows that are open after it, results, and late rows."""

    windows: tuple[Window, ...]
    fired: tuple[Fired, ...] = ()
    late: frozenset[int] = frozenset()


@dataclass
class Work:
    """One step of all operators."""

    graph: TimeGraph
    open: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)
    fired: list[Fired] = field(default_factory=list)
    late: set[int] = field(default_factory=set)

    def run(self, rows: Sequence[Row], moves: Mapping[str, tuple[int, int]]) -> None:
        for operator in self.graph.operators:
            since, until = moves[operator.name]
            for result in [each for each in self.fired if each.operator in operator.inputs]:
                end = result.time // LENGTH * LENGTH + LENGTH
                assert end > since, f"R4: {result} comes to {operator.name} at {since}"
                self._add(operator.name, result.bin, end, result.rows)
            self._fire(operator.name, until)
            for row in rows:
                if row.input in operator.inputs:
                    end = row.time // LENGTH * LENGTH + LENGTH
                    if end <= until:
                        self.late.add(row.number)
                    else:
                        self._add(operator.name, row.bin, end, (row.number,))

    def _add(self, operator: str, bin: int, end: int, rows: Sequence[int]) -> None:
        self.open.setdefault((operator, bin, end), []).extend(rows)

    def _fire(self, operator: str, until: int) -> None:
        due = [key for key in self.open if key[0] == operator and key[2] <= until]
        for key in sorted(due, key=lambda key: (key[2], key[1])):
            rows = tuple(self.open.pop(key))
            self.fired.append(Fired(operator, key[1], key[2] - 1, rows))


def run_step(
    graph: TimeGraph,
    windows: Sequence[Window],
    rows: Sequence[Row],
    moves: Mapping[str, tuple[int, int]],
) -> Made:
    """A step of all operators over their open windows."""
    work = Work(graph, {(w.operator, w.bin, w.end): list(w.rows) for w in windows})
    work.run(rows, moves)
    left = (Window(*key, tuple(rows)) for key, rows in sorted(work.open.items()))
    return Made(tuple(left), tuple(work.fired), frozenset(work.late))


def pending(windows: Sequence[Window], owners: Sequence[int]) -> tuple[PendingTimes, ...]:
    """What the workers report, each for its own bins: the least pending time of each bin."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for window in windows:
        least = found.setdefault((window.operator, owners[window.bin]), {})
        least[window.bin] = min(least.get(window.bin, window.end - 1), window.end - 1)
    return tuple(
        PendingTimes(operator, tuple(least), tuple(least.values()))
        for (operator, _), least in sorted(found.items())
    )
