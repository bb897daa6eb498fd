"""What a worker does in a step: run its operators, write what they changed, stage, report.

Everything is written under names of this attempt alone, so an attempt that is repeated, overtaken
or forgotten leaves files that nobody names, and nothing else.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import SinkNode
from anabranch.messages import Attempt, Control, Load, Report, StateReport, Tally
from anabranch.node.program import Program
from anabranch.operators.build import StatefulOperator
from anabranch.operators.rows import Changes, Rows
from anabranch.operators.tally import tally
from anabranch.plan.physical import Group
from anabranch.sinks.port import DroppedRows, StagedFile
from anabranch.sinks.staging import Rows as StagedRows
from anabranch.sinks.staging import stage
from anabranch.state.bins import Hashes, Mask
from anabranch.state.changed import Changed
from anabranch.state.layout import Layout
from anabranch.state.region_state import OperatorState, StateChange


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which attempt of which task this is: what its files are named after."""

    step: int
    revision: int
    attempt: Attempt

    def file_name(self, room: str, operator: str, extension: str) -> str:
        """A name in the store that no other attempt can have."""
        a = self.attempt
        stem = f"{self.step:012d}-{self.revision}-{a.group}-{a.level}-{a.worker}-{a.attempt}"
        return f"{room}/{operator}/{stem}.{extension}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's report, and the rows it emits, by their producer."""

    report: Report
    emitted: dict[int, Rows]


class RegionTask:
    """One group's operators in one task of one step."""

    def __init__(self, program: Program, store: Path, control: Control, place: TaskPlace) -> None:
        """Nothing is read yet."""
        self._program = program
        self._store = store
        self._control = control
        self._place = place
        self._loads = {m.operator: m for m in control.messages if isinstance(m, Load)}
        self._seconds: dict[str, float] = defaultdict(float)
        self._states: list[StateReport] = []
        self._tallies: list[Tally] = []
        self._to_stage: list[StagedRows] = []

    def run(self, arrived: dict[int, Rows], consumed: tuple[Attempt, ...]) -> TaskResult:
        """Run the operators over the rows that arrived (by their consumer), and write."""
        waiting = dict(arrived)
        emitted: dict[int, Rows] = {}
        leaving = {e.producer for e in self._program.physical.leaving(self._control.level)}
        for node_id in self._group().operators:
            rows = waiting.pop(node_id, None)
            node = self._program.physical.node(node_id)
            if isinstance(node, SinkNode):
                if rows is not None:
                    self._sink(node, rows)
                continue
            output = self._stateful(self._program.operators[node_id], rows)
            if output is None:
                continue
            for consumer in self._program.physical.direct.get(node_id, ()):
                waiting[consumer] = output
            if node_id in leaving:
                emitted[node_id] = output
        staged = self._stage()
        return TaskResult(self._report(consumed, staged), emitted)

    def count(self, place: str, rows: Rows) -> None:
        """Count rows that arrived."""
        with self._timed("count"):
            self._tallies.append(tally(place, rows, self._program.bins))

    def _group(self) -> Group:
        level = self._program.physical.levels[self._control.level]
        return next(group for group in level.groups if group.name == self._control.group)

    def _stateful(self, operator: StatefulOperator, rows: Rows | None) -> Rows | None:
        load = self._loads[operator.name]
        state = OperatorState(
            operator.name,
            self._program.layouts[operator.name],
            load.runs,
            self._store,
            self._program.bins,
            self._control.owned,
            load.live,
        )
        output: Rows | None = None
        change: StateChange | None = None
        if rows is not None and len(rows):
            timed = _TimedState(state, self._seconds)
            with self._timed("operator"):
                output, changes = operator.run(rows, timed)
            self._seconds["operator"] -= timed.spent
            with self._timed("write"):
                change = self._write(operator, state, changes)
        elif load.runs:
            with self._timed("write"):
                change = self._write(operator, state, None)
        if change is not None:
            self._seconds["merge"] += change.merge_seconds
            self._states.append(self._state_report(operator.name, change))
        return output

    def _write(
        self, operator: StatefulOperator, state: OperatorState, changes: Changes | None
    ) -> StateChange | None:
        name = self._place.file_name("run", operator.name, "arrow")
        if changes is None:
            return state.write(_nothing_changed(state.layout), name)
        return state.write(changes.changed, name, found=changes.found)

    def _state_report(self, operator: str, change: StateChange) -> StateReport:
        live = tuple(change.live.tolist())
        return StateReport(operator, self._control.owned, change.runs, live, change.merged_rows)

    def _sink(self, node: SinkNode, rows: Rows) -> None:
        self.count(f"sink {node.name}", Rows(rows.values))
        if not len(rows) or isinstance(node.sink, DroppedRows):
            return
        name = self._place.file_name("stage", node.name, node.sink.stage_format)
        self._to_stage.append(StagedRows(name, node.name, node.sink, _plain(rows.values)))

    def _stage(self) -> tuple[StagedFile, ...]:
        with self._timed("stage"):
            return stage(self._store, self._to_stage) if self._to_stage else ()

    def _report(self, consumed: tuple[Attempt, ...], staged: tuple[StagedFile, ...]) -> Report:
        return Report(
            self._place.attempt,
            consumed,
            tuple(self._states),
            staged,
            tuple(self._tallies),
            dict(self._seconds),
        )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[what] += time.perf_counter() - started


class _TimedState:
    """An operator's state that measures the time spent looking up."""

    def __init__(self, state: OperatorState, seconds: dict[str, float]) -> None:
        self._state = state
        self._seconds = seconds
        self.spent = 0.0

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        started = time.perf_counter()
        try:
            return self._state.lookup(hashes, keys)
        finally:
            self.spent = time.perf_counter() - started
            self._seconds["lookup"] += self.spent


def _nothing_changed(layout: Layout) -> Changed:
    return Changed(
        np.empty(0, dtype=np.uint64),
        layout.keys.empty_table(),
        layout.values.empty_table(),
        np.empty(0, dtype=np.bool_),
    )


def _plain(table: pa.Table) -> pa.Table:
    """The rows without the metadata that came with their schema."""
    return table.replace_schema_metadata(None)
