"""A worker's task in a step: run its operators, write their changes, stage output, report.

All file names are unique to the attempt, so a repeated or abandoned attempt leaves nothing but
files that no commit names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import MapBatchesNode, SinkNode
from anabranch.messages import (
    Acquire,
    Advance,
    Attempt,
    Collect,
    Control,
    Load,
    Message,
    PartAnswer,
    Question,
    Report,
    StateReport,
    Tally,
)
from anabranch.operators.control.message_dispatch import ProcessStep
from anabranch.operators.control.messaging import Passage
from anabranch.operators.dead_letter import RowFailure, dead_letters, with_step
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows, StateChanges, concat_batches, concat_changes
from anabranch.operators.states import StatefulOperator, run_operator, state_shapes
from anabranch.operators.tally import tally
from anabranch.operators.timed import TimedOperator
from anabranch.plan.physical import Relay
from anabranch.protocol.sinks import DeadLetterRows, DroppedRows
from anabranch.records.bins import BinSet, bin_of
from anabranch.records.profiles import TaskProfile
from anabranch.records.staged_file import StagedFile
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups
from anabranch.sinks.staging import RowsToStage, stage
from anabranch.task.profiling import TaskProfiler
from anabranch.task.program import Program
from anabranch.task.task_state import TimedState, all_keys, shares_of_keys
from anabranch.task.task_times import LOOKUP, TaskTimes
from anabranch.task.time_notes import DueState, TimeNotes
from anabranch.task.worker_home import Homes, WorkerHome


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The task's attempt, which names its files, and the step's clock."""

    step: int
    revision: int
    attempt: Attempt
    clock_ns: int = 0

    def file_name(self, room: str, operator: str, extension: str) -> str:
        """A name in the store that no other attempt uses."""
        a = self.attempt
        stem = f"{self.step:012d}-{self.revision}-{a.group}-{a.level}-{a.worker}-{a.attempt}"
        return f"{room}/{operator}/{stem}.{extension}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's report, and the rows it emits, by producer."""

    report: Report
    emitted: dict[int, Rows]


@dataclass
class RegionTask:
    """One group's operators in one task of one step; without ``homes``, state is in the store."""

    program: Program
    store: Path
    control: Control
    place: TaskPlace
    homes: Homes | None = None

    def __post_init__(self) -> None:
        control = self.control
        self._loads = {m.operator: m for m in control.messages if isinstance(m, Load)}
        moves = [m for m in control.messages if isinstance(m, Advance)]
        self._ending = {m.operator for m in moves if m.ends}
        self._home = WorkerHome(self.homes, self.store, control, self.place.step)
        self._times = TaskTimes()
        self._states: list[StateReport] = []
        self._tallies: list[Tally] = []
        self._to_stage: dict[str, list[pa.Table]] = {}
        self._failures: list[RowFailure] = []
        self._time_notes = TimeNotes.of(control.messages)
        groups = self.program.physical.levels[control.level].groups
        self._group = next(group for group in groups if group.name == control.group)
        self._passage = Passage(self._group.region, control.messages, self._inputs())
        self._process_steps: dict[int, tuple[ProcessStep, dict[str, RegionState]]] = {}

    def run(
        self, arrived: Mapping[int, Sequence[Rows]], consumed: tuple[Attempt, ...]
    ) -> TaskResult:
        """Run the operators over the arrived rows (by consumer), and write."""
        control = self.control
        profiler = TaskProfiler(control.profile, control.group, control.worker)
        with profiler.measure():
            emitted, staged = self._work(arrived)
        return TaskResult(self._report(consumed, staged, profiler.profile), emitted)

    def _work(
        self, arrived: Mapping[int, Sequence[Rows]]
    ) -> tuple[dict[int, Rows], tuple[StagedFile, ...]]:
        with self._times.moving("acquire", self._home):
            self._home.acquire()
        waiting = {consumer: list(parts) for consumer, parts in arrived.items()}
        emitted: dict[int, Rows] = {}
        leaving = self.program.physical.emitting(self.control.level)
        for node_id in self._group.operators:
            parts = waiting.pop(node_id, None)
            made = self._run_operator(node_id, self._concat_inputs(node_id, parts))
            for producer, output in made.items():
                for consumer in self.program.physical.direct.get(producer, ()):
                    waiting.setdefault(consumer, []).append(output)
                if producer in leaving:
                    emitted[producer] = output
        self._after_data()
        staged = self._stage()
        with self._times.moving("prefetch", self._home):
            self._home.after_data()
        return emitted, staged

    def _concat_inputs(self, node_id: int, parts: Sequence[Rows] | None) -> Rows | None:
        """The rows of all inputs, padded to the operator's maximum of order digits.

        The digits must not depend on which inputs have rows: the placement decides that (R9).
        """
        if not parts:
            return None
        rows = concat_batches(parts)
        digits = self.program.physical.given[node_id]
        return rows if rows.order is None else replace(rows, order=rows.order.padded(digits))

    def _run_operator(self, node_id: int, rows: Rows | None) -> dict[int, Rows]:
        """Run one operator; returns its output by producer: its own, and that of its late rows."""
        node = self.program.physical.node(node_id)
        output: Rows | None = None
        match node:
            case SinkNode():
                if rows is not None:
                    self._sink(node, rows)
            case MapBatchesNode():
                function, failures = (
                    self.program.functions[node.name],
                    self._failures_of(node.name),
                )
                with self._times.spent("operator"):
                    output = None if rows is None else function.run(rows, failures)
            case Relay():
                output = rows
            case _ if node_id in self.program.timed:
                return self._run_timed(node_id, self.program.timed[node_id], rows)
            case _:
                output = self._run_stateful(node_id, rows)
        return {} if output is None else {node_id: output}

    def _failures_of(self, operator: str) -> list[RowFailure] | None:
        """The list for an operator's failed rows; None if a failure fails the step."""
        return self._failures if operator in self.program.surviving else None

    def count(self, place: str, rows: Rows) -> None:
        """Count arrived rows."""
        with self._times.spent("count"):
            self._tallies.append(tally(place, rows, self.program.bins))

    def _inputs(self) -> dict[int, int]:
        """The number of inputs of each operator; those from the exchange arrive as one."""
        physical, own = self.program.physical, self._group.operators
        edges = physical.levels[self.control.level].inputs
        begun = {edge.consumer for edge in edges if edge.distributes}
        within = Counter(c for node in own for c in physical.direct.get(node, ()))
        within.update(edge.consumer for edge in edges if not edge.distributes)
        return {node: max((node in begun) + within[node], 1) for node in own}

    def _after_data(self) -> None:
        """Deliver the messages that come after the data, then write the state that awaits them."""
        for node_id in self._group.operators:
            for message in self._passage.after_data(node_id):
                if node_id in self._process_steps:
                    self._handle_message(node_id, message)
        for process_step, states in self._process_steps.values():
            with self._times.spent("operator"):
                changes = process_step.changes()
            self._write_all(states, changes)

    def _handle_message(self, node_id: int, message: Message) -> None:
        operator, (process_step, _) = self.program.operators[node_id], self._process_steps[node_id]
        if isinstance(operator, ProcessOperator) and operator.handles_message(message):
            with self._times.spent("messages"):
                self._passage.mark_handled(node_id, message, process_step.handle(message))

    def _run_process(
        self, node_id: int, operator: ProcessOperator, rows: Rows | None
    ) -> Rows | None:
        """Run an operator that handles messages; its state is written after the last one."""
        states = {shape.name: self._open(shape.name) for shape in state_shapes(operator)}
        ends = self._ends(operator)
        others = self._keys(states) if ends else self._moving(operator)
        with self._times.spent("operator"):
            process_step = self._process_step(node_id, operator, rows, others, states)
            self._process_steps[node_id] = (process_step, states)
            for message in self._passage.before_data(node_id):
                self._handle_message(node_id, message)
            return process_step.run(self.program.physical.digits[node_id], ends=ends)

    def _process_step(
        self,
        node_id: int,
        operator: ProcessOperator,
        rows: Rows | None,
        others: Groups | None,
        states: Mapping[str, RegionState],
    ) -> ProcessStep:
        key = self.program.typed.key(node_id)
        assert key is not None
        views, failures = self._views(states), self._failures_of(operator.name)
        return ProcessStep(operator, rows, others, views, key, self.program.bins, failures)

    def _ends(self, operator: ProcessOperator) -> bool:
        """Whether the operator is to be told the end of its input in this step."""
        return operator.handles_end and operator.name in self._ending

    def _keys(self, states: Mapping[str, RegionState], bins: BinSet | None = None) -> Groups | None:
        """The keys with state, of some bins or of all."""
        chosen = BinSet.every(self.program.bins) if bins is None else bins
        return all_keys(list(states.values()), self.place.clock_ns, chosen)

    def _moving(self, operator: ProcessOperator) -> Groups | None:
        """The keys with saved state in bins that arrive or leave."""
        if operator.saved is None:
            return None
        moves = [m for m in self.control.messages if isinstance(m, Acquire | Collect)]
        handled = (m.bins for m in moves if operator.handles_message(m))
        bins = reduce(or_, handled, BinSet())
        return all_keys([self._open(operator.saved.state, bins)], self.place.clock_ns, bins)

    def _run_stateful(self, node_id: int, rows: Rows | None) -> Rows | None:
        """Run an operator over its rows, if any, and write its changes and due merges."""
        operator = self.program.operators[node_id]
        ordering = self.program.orderings.get(node_id)
        if rows is not None and len(rows) and ordering is not None:
            rows = ordering.apply(rows)
        if isinstance(operator, ProcessOperator) and any(
            map(operator.handles_message, self.control.messages)
        ):
            return self._run_process(node_id, operator, rows)
        states = {shape.name: self._open(shape.name) for shape in state_shapes(operator)}
        output: Rows | None = None
        changes: dict[str, StateChanges] = {}
        if isinstance(operator, ProcessOperator) and self._ends(operator):
            with self._times.spent("operator"):
                output, changes = self._end(node_id, operator, rows, states)
        elif rows is not None and len(rows):
            before = self._times.seconds[LOOKUP]
            with self._times.spent("operator"):
                failures = self._failures_of(operator.name)
                output, changes = run_operator(operator, rows, self._views(states), failures)
            self._times.seconds["operator"] -= self._times.seconds[LOOKUP] - before
        self._write_all(states, changes)
        return output

    def _run_timed(
        self, node_id: int, operator: TimedOperator, rows: Rows | None
    ) -> dict[int, Rows]:
        """Run an operator over event time, write its changes, and note what it has pending."""
        stateful, notes = self.program.operators[node_id], self._time_notes
        states = {shape.name: self._open(shape.name) for shape in state_shapes(stateful)}
        before = self._times.seconds[LOOKUP]
        with self._times.spent("operator"):
            made = operator.step(rows, notes.frontiers[operator.name], self._views(states))
        self._times.seconds["operator"] -= self._times.seconds[LOOKUP] - before
        self._write_all(states, made.changes)
        notes.note_pending(operator, self._due_states(stateful, states))
        found = {} if made.output is None else {node_id: made.output}
        return found | notes.note_late(self.program.typed, node_id, operator.name, made.late)

    def _due_states(
        self, operator: StatefulOperator, states: Mapping[str, RegionState]
    ) -> Iterator[DueState]:
        """What falls due of an operator's states, as the step leaves them."""
        for shape in state_shapes(operator):
            if shape.dues:
                now = self._expires_at(shape.name)
                left = self._reopen(shape.name, states[shape.name])
                yield DueState(shape.name, shape.clock, now, left.next_due(now))

    def _views(self, states: Mapping[str, RegionState]) -> dict[str, TimedState]:
        clock, step = self.place.clock_ns, self.place.step
        return {
            name: TimedState(state, clock, self._expires_at(name), step, self._times)
            for name, state in states.items()
        }

    def _expires_at(self, state: str) -> int:
        """What the rows of a state expire by: the step's clock, or the operator's frontier."""
        shape, operator = self.program.states[state]
        return (
            self._time_notes.frontiers[operator].until
            if shape.clock == "event"
            else self.place.clock_ns
        )

    def _write_all(
        self, states: Mapping[str, RegionState], changes: Mapping[str, StateChanges]
    ) -> None:
        for name, state in states.items():
            changed = changes.get(name)
            # Without changes there may be merges that are due.
            if changed is not None or self._loads[name].runs:
                with self._times.spent("write"):
                    self._write(name, state, changed)

    def _end(
        self,
        node_id: int,
        operator: ProcessOperator,
        rows: Rows | None,
        states: Mapping[str, RegionState],
    ) -> tuple[Rows | None, dict[str, StateChanges]]:
        """End all keys of an operator, after the rows that the end upstream has made.

        A few bins at a time, to bound the number of Python objects for keys and values.
        """
        output: list[Rows] = []
        changes: dict[str, list[StateChanges]] = {}
        for bins in shares_of_keys(np.sum([state.live for state in states.values()], axis=0)):
            own, others = self._rows_in(rows, bins), self._keys(states, bins)
            if not own and others is None:
                continue
            process_step = self._process_step(node_id, operator, own, others, states)
            made = process_step.run(self.program.physical.digits[node_id], ends=True)
            output += [] if made is None else [made]
            for name, change in process_step.changes().items():
                changes.setdefault(name, []).append(change)
        every = {name: concat_changes(parts) for name, parts in changes.items()}
        return concat_batches(output) if output else None, every

    def _rows_in(self, rows: Rows | None, bins: BinSet) -> Rows | None:
        """The rows whose keys are in some bins."""
        if rows is None or rows.hashes is None:
            return None
        chosen = bins.mask(self.program.bins)[bin_of(rows.hashes, self.program.bins)]
        return rows.take(np.flatnonzero(chosen))

    def _open(self, name: str, bins: BinSet | None = None) -> RegionState:
        load = self._loads[name]
        return RegionState(
            name,
            self.program.layouts[name],
            load.runs,
            self.store,
            self.program.bins,
            self.control.owned if bins is None else bins,
            load.live,
            files=self._home.files,
        )

    def _reopen(self, name: str, before: RegionState) -> RegionState:
        """The state as the step leaves it."""
        written = next((each for each in self._states if each.operator == name), None)
        if written is None:
            return before
        return RegionState(
            name,
            self.program.layouts[name],
            written.runs,
            self.store,
            self.program.bins,
            self.control.owned,
            written.live,
            files=self._home.files,
        )

    def _write(self, state_name: str, state: RegionState, changes: StateChanges | None) -> None:
        name = self.place.file_name("run", state_name, "arrow")
        change = state.write(
            None if changes is None else changes.changed,
            name,
            found=None if changes is None else changes.found,
            now_ns=self._expires_at(state_name),
            still=self._home.held,
            # Both copies and merges would make this the longest step of a rescale.
            bursts=not self._home.is_moving,
        )
        if change is None:
            return
        self._times.seconds["merge"] += change.compaction_seconds
        live, owned = tuple(change.live.tolist()), self.control.owned
        self._states.append(
            StateReport(state_name, owned, change.runs, live, change.compacted_rows)
        )

    def _sink(self, node: SinkNode, rows: Rows) -> None:
        self.count(f"sink {node.name}", Rows(rows.values))
        letters = self.program.typed.graph.dead_letters()
        if not len(rows):
            return
        if isinstance(node.sink, DeadLetterRows) and letters is not None:
            self._sink(letters, rows)
        elif not isinstance(node.sink, DroppedRows):
            values = with_step(rows.values, self.place.step) if node.letters else rows.values
            # The schema's metadata does not belong to the output.
            plain = values.replace_schema_metadata(None)
            self._to_stage.setdefault(node.name, []).append(plain)

    def _stage(self) -> tuple[StagedFile, ...]:
        """Stage one file for each sink with rows."""
        letters = self.program.typed.graph.dead_letters()
        if self._failures and letters is not None:
            self._sink(letters, Rows(dead_letters(self._failures, self.place.step)))
        if not self._to_stage:
            return ()
        found = []
        for name, tables in self._to_stage.items():
            sink = self.program.sinks[name].sink
            file = self.place.file_name("stage", name, sink.stage_format)
            found.append(RowsToStage(file, name, sink, pa.concat_tables(tables)))
        with self._times.spent("stage"):
            return stage(self.store, found)

    def _report(
        self,
        consumed: tuple[Attempt, ...],
        staged: tuple[StagedFile, ...],
        profile: TaskProfile | None,
    ) -> Report:
        name, node = self.control.group, self.program.physical.node
        names = {id: getattr(node(id), "name", f"relay {id}") for id in self._group.operators}
        return Report(
            self.place.attempt,
            consumed,
            tuple(self._states),
            staged,
            tuple(self._tallies),
            dict(self._times.seconds),
            passed=self._passage.passed(names),
            registered=tuple(
                each.by_bin(name) for each, _ in self._process_steps.values() if each.registered
            ),
            homes=self._home.use(),
            copied=self._home.copied,
            profile=profile,
            pending=tuple(self._time_notes.pending),
            wakes=tuple(self._time_notes.wakes),
            late=tuple(self._time_notes.late),
            answers=tuple(
                PartAnswer(m.part, self._group.region or "", self.control.worker, m.body)
                for m in self.control.messages
                if isinstance(m, Question)
            ),
        )
