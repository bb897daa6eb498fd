"""Runs a ``process`` in a step: as rows come, or step by step if it has to do with time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import (
    KeyedEntries,
    Rows,
    StateChanges,
    concat_batches,
    concat_changes,
)
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timers.due_timers import due_timers
from anabranch.operators.timers.process_work import ProcessWork
from anabranch.operators.timers.step_parts import StepParts, split_by_hash, split_fired
from anabranch.records.bins import Hashes
from anabranch.runs.rows import Groups


def run_process(
    operator: ProcessOperator,
    rows: Rows,
    states: Mapping[str, KeyedEntries],
    now_ns: int,
    dead: list[RowFailure] | None = None,
) -> tuple[Rows, dict[str, StateChanges]]:
    """Call ``on_rows`` for every key; return the output and the changes of every state.

    With ``dead``, a call that fails changes nothing, and its rows are added there.
    """
    work = ProcessWork(operator, StepParts(data=rows), states, now_ns, dead=dead)
    output = work.run()
    assert output is not None
    return output, work.changes()


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """A ``process`` that has to do with time: its rows have event times, or it can set timers."""

    operator: ProcessOperator

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    def step(
        self,
        rows: Rows | None,
        frontier: FrontierMove,
        states: Mapping[str, TimedEntries],
        *,
        now_ns: int | None = None,
        dead: list[RowFailure] | None = None,
        ending: Iterable[Groups] = (),
    ) -> TimedResult:
        """Process a step: fired rows, then due timers, then the other rows, then ending keys.

        ``now_ns`` is the clock of the step, by default that of the states. ``ending`` are the keys
        with state if the input has ended and the class wants to know, some at a time, in the order
        of their hashes.
        """
        if now_ns is None:
            now_ns = next((state.now_ns for state in states.values()), 0)
        whole, late = self.parts(rows, frontier, states, now_ns)
        output: list[Rows] = []
        changes: dict[str, list[StateChanges]] = {}
        overdue: list[Hashes] = []
        for part in split_by_hash(whole, ending):
            work = ProcessWork(self.operator, part, states, now_ns, dead=dead, frontier=frontier)
            made = work.run()
            if made is not None and len(made):
                output.append(made)
            for name, change in work.changes().items():
                changes.setdefault(name, []).append(change)
            overdue.append(work.overdue())
        return TimedResult(
            concat_batches(output) if output else None,
            late,
            {name: concat_changes(parts) for name, parts in changes.items()},
            np.concatenate(overdue) if overdue else None,
        )

    def parts(
        self,
        rows: Rows | None,
        frontier: FrontierMove,
        states: Mapping[str, TimedEntries],
        now_ns: int,
    ) -> tuple[StepParts, Rows | None]:
        """What the class is called with in a step, and the rows that are late."""
        operator = self.operator
        fired, data, late = split_fired(rows, timed=operator.timed, ends=frontier.ends)
        due = due_timers(operator.name, frontier, now_ns, states)
        ends = frontier.ends and operator.handles_end
        return StepParts(fired, due, data, ends=ends), late

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The time of a timer's output: the microsecond before it is due."""
        return dues - 1
