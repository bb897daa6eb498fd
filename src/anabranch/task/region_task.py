"""What a worker does in a step: run its operators, write what they changed, stage, report.

Everything is written under names of this attempt alone, so an attempt that is repeated, overtaken
or forgotten leaves files that nobody names, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import MapBatchesNode, SinkNode
from anabranch.messages import (
    Acquire,
    Attempt,
    Collect,
    Control,
    End,
    Load,
    Message,
    PartAnswer,
    Question,
    Report,
    StateReport,
    Tally,
)
from anabranch.operators.control.message_dispatch import ProcessStep
from anabranch.operators.control.messaging import MessageView, Passage
from anabranch.operators.dead_letter import RowFailure, dead_letters, with_step
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows, StateChanges, concat_batches, concat_changes
from anabranch.operators.states import run_operator, state_shapes
from anabranch.operators.tally import tally
from anabranch.plan.physical import Group, Relay
from anabranch.protocol.sinks import DeadLetterRows, DroppedRows
from anabranch.records.bins import BinSet
from anabranch.records.profiles import TaskProfile
from anabranch.records.staged_file import StagedFile
from anabranch.runs.changes import no_changes
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups
from anabranch.sinks.staging import RowsToStage as StagedRows
from anabranch.sinks.staging import stage
from anabranch.task.profiling import Watched
from anabranch.task.program import Program
from anabranch.task.task_state import TimedState, all_keys, shares_of_keys
from anabranch.task.task_times import TaskTimes
from anabranch.task.worker_home import Homes, WorkerHome


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which attempt of which task this is: what its files are named after; and the step's clock."""

    step: int
    revision: int
    attempt: Attempt
    clock_ns: int = 0

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

    def __init__(
        self,
        program: Program,
        store: Path,
        control: Control,
        place: TaskPlace,
        homes: Homes | None = None,
    ) -> None:
        """Nothing is read yet. Without ``homes``, state is read in the store."""
        self._program = program
        self._store = store
        self._control = control
        self._place = place
        self._loads = {m.operator: m for m in control.messages if isinstance(m, Load)}
        self._ending = {m.operator for m in control.messages if isinstance(m, End)}
        self._homely = WorkerHome(homes, store, control, place.step)
        self._times = TaskTimes()
        self._states: list[StateReport] = []
        self._tallies: list[Tally] = []
        self._to_stage: dict[str, list[pa.Table]] = {}
        self._failures: list[RowFailure] = []
        self._passage = Passage(self._group().region, control.messages, self._inputs())
        self._process_steps: dict[int, tuple[ProcessStep, dict[str, RegionState]]] = {}

    def run(
        self, arrived: Mapping[int, Sequence[Rows]], consumed: tuple[Attempt, ...]
    ) -> TaskResult:
        """Run the operators over the rows that arrived (by their consumer), and write."""
        control = self._control
        watched = Watched(control.profile, control.group, control.worker)
        with watched.looking():
            emitted, staged = self._work(arrived)
        return TaskResult(self._report(consumed, staged, watched.profile), emitted)

    def _work(
        self, arrived: Mapping[int, Sequence[Rows]]
    ) -> tuple[dict[int, Rows], tuple[StagedFile, ...]]:
        with self._times.moving("acquire", self._homely):
            self._homely.acquire()
        waiting = {consumer: list(parts) for consumer, parts in arrived.items()}
        emitted: dict[int, Rows] = {}
        leaving = self._program.physical.emitting(self._control.level)
        for node_id in self._group().operators:
            parts = waiting.pop(node_id, None)
            output = self._operator(node_id, self._together(node_id, parts))
            if output is None:
                continue
            for consumer in self._program.physical.direct.get(node_id, ()):
                waiting.setdefault(consumer, []).append(output)
            if node_id in leaving:
                emitted[node_id] = output
        self._after_data()
        staged = self._stage()
        with self._times.moving("prefetch", self._homely):
            self._homely.after_data()
        return emitted, staged

    def _together(self, node_id: int, parts: Sequence[Rows] | None) -> Rows | None:
        """The rows of all inputs, with as many order digits as they can have.

        Whether an input has rows depends on the placement, so the digits must not (R9).
        """
        if not parts:
            return None
        rows = concat_batches(parts)
        digits = self._program.physical.given[node_id]
        return rows if rows.order is None else replace(rows, order=rows.order.padded(digits))

    def _operator(self, node_id: int, rows: Rows | None) -> Rows | None:
        """Run one operator; gives its output, None where it has none."""
        node = self._program.physical.node(node_id)
        match node:
            case SinkNode():
                if rows is not None:
                    self._sink(node, rows)
                return None
            case MapBatchesNode():
                return None if rows is None else self._mapped(node, rows)
            case Relay():
                return rows
            case _:
                return self._stateful(node_id, rows)

    def _mapped(self, node: MapBatchesNode, rows: Rows) -> Rows:
        with self._times.spent("operator"):
            return self._program.functions[node.name].run(rows, self._dead(node.name))

    def _dead(self, operator: str) -> list[RowFailure] | None:
        """Where an operator puts what it cannot process; None where that ends the step."""
        return self._failures if operator in self._program.surviving else None

    def count(self, place: str, rows: Rows) -> None:
        """Count rows that arrived."""
        with self._times.spent("count"):
            self._tallies.append(tally(place, rows, self._program.bins))

    def _group(self) -> Group:
        level = self._program.physical.levels[self._control.level]
        return next(group for group in level.groups if group.name == self._control.group)

    def _inputs(self) -> dict[int, int]:
        """How many inputs each operator has: those that begin the region come united, as one."""
        physical, own = self._program.physical, self._group().operators
        edges = physical.levels[self._control.level].inputs
        begun = {edge.consumer for edge in edges if edge.distributes}
        within = Counter(c for node in own for c in physical.direct.get(node, ()))
        within.update(edge.consumer for edge in edges if not edge.distributes)
        return {node: max((node in begun) + within[node], 1) for node in own}

    def _after_data(self) -> None:
        """Let the messages that come after the data pass; then write what waited for them."""
        for node_id in self._group().operators:
            for message, view in self._passage.after_data(node_id):
                if node_id in self._process_steps:
                    self._handle_message(node_id, message, view)
        for process_step, states in self._process_steps.values():
            with self._times.spent("operator"):
                changes = process_step.changes()
            self._write_all(states, changes)

    def _handle_message(self, node_id: int, message: Message, view: MessageView) -> None:
        process_step, _ = self._process_steps[node_id]
        if self._program.operators[node_id].handles_message(message):
            with self._times.spent("messages"):
                self._passage.mark_handled(node_id, message, process_step.handle(message, view))

    def _attended(self, node_id: int, operator: ProcessOperator, rows: Rows | None) -> Rows | None:
        """Run an operator that handles some of the messages; it is written after the last one."""
        states = {shape.name: self._open(shape.name) for shape in state_shapes(operator)}
        views = self._views(states)
        ending = None
        if not (rows is not None and len(rows)) and operator.name in self._ending:
            every = BinSet.every(self._program.bins)
            ending = all_keys(list(states.values()), self._place.clock_ns, every)
        key = self._program.typed.key(node_id)
        assert key is not None
        with self._times.spent("operator"):
            process_step = ProcessStep(
                operator,
                rows,
                ending,
                self._moving(operator) if ending is None else None,
                views,
                key,
                self._program.bins,
                self._dead(operator.name),
            )
            self._process_steps[node_id] = (process_step, states)
            for message, view in self._passage.before_data(node_id):
                self._handle_message(node_id, message, view)
            return process_step.run(self._program.physical.digits[node_id])

    def _moving(self, operator: ProcessOperator) -> Groups | None:
        """The keys of bins that come or go and that the operator has saved something of."""
        if operator.saved is None:
            return None
        bins = BinSet()
        for message in self._control.messages:
            if isinstance(message, Acquire | Collect) and operator.handles_message(message):
                bins |= message.bins
        return all_keys([self._open(operator.saved.state, bins)], self._place.clock_ns, bins)

    def _stateful(self, node_id: int, rows: Rows | None) -> Rows | None:
        """Run an operator over its rows, if there are any, and write what changed or is due."""
        operator = self._program.operators[node_id]
        ordering = self._program.orderings.get(node_id)
        if rows is not None and len(rows) and ordering is not None:
            rows = ordering.apply(rows)
        if isinstance(operator, ProcessOperator) and self._passage.handled_by(operator):
            return self._attended(node_id, operator, rows)
        states = {shape.name: self._open(shape.name) for shape in state_shapes(operator)}
        output: Rows | None = None
        changes: dict[str, StateChanges] = {}
        if rows is not None and len(rows):
            views = self._views(states)
            with self._times.spent("operator"):
                output, changes = run_operator(operator, rows, views, self._dead(operator.name))
            self._times.seconds["operator"] -= sum(view.spent for view in views.values())
        elif isinstance(operator, ProcessOperator) and operator.name in self._ending:
            with self._times.spent("operator"):
                output, changes = self._end(node_id, operator, states)
        self._write_all(states, changes)
        return output

    def _views(self, states: Mapping[str, RegionState]) -> dict[str, TimedState]:
        clock, step = self._place.clock_ns, self._place.step
        return {n: TimedState(s, clock, step, self._times.seconds) for n, s in states.items()}

    def _write_all(
        self, states: Mapping[str, RegionState], changes: Mapping[str, StateChanges]
    ) -> None:
        for name, state in states.items():
            with self._times.spent("write"):
                self._write(name, state, changes.get(name))

    def _end(
        self, node_id: int, operator: ProcessOperator, states: Mapping[str, RegionState]
    ) -> tuple[Rows | None, dict[str, StateChanges]]:
        """Tell all keys of an operator that the input has ended. No rows come in such a step.

        Some bins at a time: their keys and what they keep are objects, and those of all bins
        together may be too many.
        """
        views = self._views(states)
        digits, dead = self._program.physical.digits[node_id], self._dead(operator.name)
        output: list[Rows] = []
        changes: dict[str, list[StateChanges]] = {}
        for bins in shares_of_keys(np.sum([state.live for state in states.values()], axis=0)):
            groups = all_keys(list(states.values()), self._place.clock_ns, bins)
            if groups is None:
                continue
            made, changed = operator.end(groups, views, digits, dead)
            output.append(made)
            for name, change in changed.items():
                changes.setdefault(name, []).append(change)
        every = {name: concat_changes(parts) for name, parts in changes.items()}
        return concat_batches(output) if output else None, every

    def _open(self, name: str, bins: BinSet | None = None) -> RegionState:
        load = self._loads[name]
        return RegionState(
            name,
            self._program.layouts[name],
            load.runs,
            self._store,
            self._program.bins,
            self._control.owned if bins is None else bins,
            load.live,
            files=self._homely.files,
        )

    def _write(self, state_name: str, state: RegionState, changes: StateChanges | None) -> None:
        """Write what changed, or only what is due for merging."""
        if changes is None and not self._loads[state_name].runs:
            return
        name = self._place.file_name("run", state_name, "arrow")
        changed = no_changes(state.layout) if changes is None else changes.changed
        found = None if changes is None else changes.found
        change = state.write(
            changed,
            name,
            found=found,
            now_ns=self._place.clock_ns,
            still=self._homely.held,
            # Copies and merges of one step would make it the longest of a rescale.
            bursts=not self._homely.is_moving,
        )
        if change is None:
            return
        self._times.seconds["merge"] += change.compaction_seconds
        live = tuple(change.live.tolist())
        report = StateReport(
            state_name, self._control.owned, change.runs, live, change.compacted_rows
        )
        self._states.append(report)

    def _sink(self, node: SinkNode, rows: Rows) -> None:
        self.count(f"sink {node.name}", Rows(rows.values))
        letters = self._program.typed.graph.dead_letters()
        if not len(rows):
            return
        if isinstance(node.sink, DeadLetterRows) and letters is not None:
            self._sink(letters, rows)
        elif not isinstance(node.sink, DroppedRows):
            values = with_step(rows.values, self._place.step) if node.letters else rows.values
            self._to_stage.setdefault(node.name, []).append(_plain(values))

    def _stage(self) -> tuple[StagedFile, ...]:
        """One file for each sink that has rows, however many ways they came."""
        letters = self._program.typed.graph.dead_letters()
        if self._failures and letters is not None:
            self._sink(letters, Rows(dead_letters(self._failures, self._place.step)))
        if not self._to_stage:
            return ()
        found = []
        for name, tables in self._to_stage.items():
            sink = self._program.sinks[name].sink
            file = self._place.file_name("stage", name, sink.stage_format)
            found.append(StagedRows(file, name, sink, pa.concat_tables(tables)))
        with self._times.spent("stage"):
            return stage(self._store, found)

    def _report(
        self,
        consumed: tuple[Attempt, ...],
        staged: tuple[StagedFile, ...],
        profile: TaskProfile | None,
    ) -> Report:
        name = self._control.group
        return Report(
            self._place.attempt,
            consumed,
            tuple(self._states),
            staged,
            tuple(self._tallies),
            dict(self._times.seconds),
            passed=self._passage.passed(self._names()),
            registered=tuple(
                each.by_bin(name) for each, _ in self._process_steps.values() if each.registered
            ),
            homes=self._homely.use(),
            copied=self._homely.copied,
            profile=profile,
            answers=tuple(
                PartAnswer(m.part, self._group().region or "", self._control.worker, m.body)
                for m in self._control.messages
                if isinstance(m, Question)
            ),
        )

    def _names(self) -> dict[int, str]:
        node = self._program.physical.node
        return {id: getattr(node(id), "name", f"relay {id}") for id in self._group().operators}


def _plain(table: pa.Table) -> pa.Table:
    """The rows without the metadata that came with their schema."""
    return table.replace_schema_metadata(None)
