"""What a task notes about event time: frontiers, what is pending, and late rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.graph import AggregateNode
from anabranch.dataflow.types.typed import Typed
from anabranch.messages import Advance, LateRows, Message, OverdueTimers, PendingTimes
from anabranch.operators.aggregate import late_values
from anabranch.operators.rows import Rows
from anabranch.operators.timed import FrontierMove, TimedOperator
from anabranch.records.times import EARLIEST
from anabranch.runs.due import NEVER
from anabranch.runs.keys import Index

_NO_FRONTIER = FrontierMove(EARLIEST, EARLIEST)


@dataclass(frozen=True, slots=True)
class DueState:
    """When the earliest row of each bin of a state falls due after ``now``; ``NEVER`` if none."""

    name: str
    clock: Clock
    now: int
    dues: Index


@dataclass
class TimeNotes:
    """The frontiers of a task's operators, and what it reports of time."""

    frontiers: Mapping[str, FrontierMove]
    pending: list[PendingTimes] = field(default_factory=list)
    wakes: list[PendingTimes] = field(default_factory=list)
    late: list[LateRows] = field(default_factory=list)
    overdue: list[OverdueTimers] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> TimeNotes:
        """The notes of a task that got these messages."""
        moves = (m for m in messages if isinstance(m, Advance))
        return cls({move.operator: FrontierMove(move.since, move.until) for move in moves})

    def frontier(self, operator: str) -> FrontierMove:
        """An operator's frontier; one that never moves if the dataflow has no event times."""
        return self.frontiers.get(operator, _NO_FRONTIER)

    def note_pending(self, operator: TimedOperator, states: Iterable[DueState]) -> None:
        """Note what falls due later, by event time and by the step's clock."""
        by_event, by_clock = [], []
        for state in states:
            times = np.full(len(state.dues), NEVER, dtype=np.int64)
            waiting = np.flatnonzero(state.dues < NEVER)
            dues = state.dues[waiting]
            if state.clock == "event":
                times[waiting] = operator.holds(state.name, dues, state.now)
                by_event.append(times)
            else:
                # The step's clock is in nanoseconds; nothing falls due too early.
                times[waiting] = -(-dues // 1000)
                by_clock.append(times)
        self.pending += _earliest(operator.name, by_event)
        self.wakes += _earliest(operator.name, by_clock)

    def note_overdue(self, operator: str, bins: Index, all_bins: int, now_ns: int) -> DueState:
        """Count timers that were due when they were set; they wait for a step, as of now.

        ``bins`` are those of their keys.
        """
        if len(bins):
            self.overdue.append(OverdueTimers(operator, len(bins)))
        dues = np.full(all_bins, NEVER, dtype=np.int64)
        dues[bins] = now_ns
        return DueState(operator, "step", now_ns, dues)

    def note_late(
        self, typed: Typed, node_id: int, operator: str, late: Rows | None
    ) -> dict[int, Rows]:
        """Count the rows that came too late; as they came, with the frontier, by stream."""
        if late is None or not len(late):
            return {}
        self.late.append(LateRows(operator, len(late)))
        streams = typed.graph.late_of(node_id)
        if not streams:
            return {}
        node, values = typed.graph.node(node_id), late.values
        if isinstance(node, AggregateNode):
            values = late_values(values, typed.schema(node.inputs[0]))
        schema = typed.schema(streams[0].id)
        frontier = pa.scalar(self.frontiers[operator].until, pa.int64()).cast(schema.types[-1])
        columns = [*values.columns, pa.repeat(frontier, len(late))]
        table = pa.Table.from_arrays(columns, schema=schema)
        rows = replace(late, values=table, times=None, fired=None)
        return {stream.id: rows for stream in streams}


def _earliest(operator: str, found: list[Index]) -> list[PendingTimes]:
    """The earliest time of each bin that has one; nothing if no bin does."""
    if not found:
        return []
    times = np.min(found, axis=0)
    bins = np.flatnonzero(times < NEVER)
    if not len(bins):
        return []
    return [PendingTimes(operator, tuple(bins.tolist()), tuple(times[bins].tolist()))]
