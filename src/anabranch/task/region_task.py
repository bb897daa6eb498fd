"""A worker's task in a step: run its operators, write their changes, stage output, report.

All file names are unique to the attempt, so a repeated or abandoned attempt leaves nothing but
files that no commit names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from anabranch.dataflow.graph import MapBatchesNode, SinkNode
from anabranch.messages import Attempt, Control, PartAnswer, Question, Report, Tally
from anabranch.operators.control.messaging import Passage
from anabranch.operators.dead_letter import RowFailure, dead_letters, with_step
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows, StateChanges, concat_batches
from anabranch.operators.states import run_operator, run_step
from anabranch.operators.tally import tally
from anabranch.operators.timed import TimedOperator
from anabranch.plan.physical import Relay
from anabranch.protocol.sinks import DeadLetterRows, DroppedRows
from anabranch.records.profiles import TaskProfile
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.staging import RowsToStage, stage
from anabranch.task.process_task import ProcessTask, ToldProcess
from anabranch.task.profiling import TaskProfiler
from anabranch.task.program import Program
from anabranch.task.state_access import StateAccess
from anabranch.task.task_place import TaskPlace
from anabranch.task.task_times import TaskTimes
from anabranch.task.time_notes import TimeNotes
from anabranch.task.worker_home import Homes, WorkerHome


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
        self._home = WorkerHome(self.homes, self.store, control, self.place.step)
        self._times = TaskTimes()
        self._time_notes = TimeNotes.of(control.messages)
        self._access = StateAccess(
            self.program, self.store, control, self.place, self._home, self._times, self._time_notes
        )
        self._tallies: list[Tally] = []
        self._to_stage: dict[str, list[pa.Table]] = {}
        self._failures: list[RowFailure] = []
        groups = self.program.physical.levels[control.level].groups
        self._group = next(group for group in groups if group.name == control.group)
        self._passage = Passage(self._group.region, control.messages, self._inputs())
        self._told: dict[int, ToldProcess] = {}

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
            case _:
                return self._run_stateful(node_id, rows)
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
                if node_id in self._told:
                    self._told[node_id].handle(message)
        for told in self._told.values():
            told.finish()

    def _run_stateful(self, node_id: int, rows: Rows | None) -> dict[int, Rows]:
        """Run an operator with state; returns its output and that of its late rows."""
        operator, timed = self.program.operators[node_id], self.program.timed.get(node_id)
        ordering = self.program.orderings.get(node_id)
        if rows is not None and len(rows) and ordering is not None:
            rows = ordering.apply(rows)
        if isinstance(operator, ProcessOperator):
            told = any(map(operator.handles_message, self.control.messages))
            ends = operator.handles_end and self._time_notes.frontier(operator.name).ends
            if told or ends or timed is not None:
                return self._run_process(node_id, operator, rows, told=told)
        if timed is not None:
            return self._run_timed(node_id, timed, rows)
        states = self._access.open_all(operator)
        output: Rows | None = None
        changes: dict[str, StateChanges] = {}
        if rows is not None and len(rows):
            failures, clock = self._failures_of(operator.name), self.place.clock_ns
            with self._times.operating():
                views = self._access.views(states)
                output, changes = run_operator(operator, rows, views, clock, failures)
        self._access.write_all(states, changes)
        return {} if output is None else {node_id: output}

    def _run_timed(
        self, node_id: int, operator: TimedOperator, rows: Rows | None
    ) -> dict[int, Rows]:
        """Run an operator over event time, write its changes, and note what it has pending."""
        stateful, notes = self.program.operators[node_id], self._time_notes
        ordering = self.program.orderings.get(node_id)
        states = self._access.open_all(stateful)
        move, failures = notes.frontier(operator.name), self._failures_of(operator.name)
        with self._times.operating():
            made = run_step(operator, rows, move, self._access.views(states), failures)
        self._access.write_all(states, made.changes)
        notes.note_pending(operator, self._access.due_states(stateful, states))
        late = made.late if ordering is None or made.late is None else ordering.undo(made.late)
        return self._made(node_id, operator.name, made.output, late)

    def _run_process(
        self, node_id: int, operator: ProcessOperator, rows: Rows | None, *, told: bool
    ) -> dict[int, Rows]:
        """Run a class that time, the end of its input or messages concern."""
        key = self.program.typed.key(node_id)
        assert key is not None
        task = ProcessTask(operator, self._access, self._failures_of(operator.name), key)
        if not told:
            made = task.run(rows)
            return self._made(node_id, operator.name, made.output, made.late)
        with_messages = ToldProcess(task, self._passage, node_id)
        self._told[node_id] = with_messages
        output, late = with_messages.run(rows)
        return self._made(node_id, operator.name, output, late)

    def _made(
        self, node_id: int, operator: str, output: Rows | None, late: Rows | None
    ) -> dict[int, Rows]:
        """What an operator made, by producer."""
        found = self._time_notes.note_late(self.program.typed, node_id, operator, late)
        if output is None:
            return found
        if output.order is not None:
            # Rows that the frontier made have few digits.
            digits = self.program.physical.digits[node_id]
            output = replace(output, order=output.order.padded(digits))
        return {node_id: output, **found}

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
            tuple(self._access.written),
            staged,
            tuple(self._tallies),
            dict(self._times.seconds),
            passed=self._passage.passed(names),
            registered=tuple(
                told.step.by_bin(name) for told in self._told.values() if told.step.registered
            ),
            homes=self._home.use(),
            copied=self._home.copied,
            profile=profile,
            pending=tuple(self._time_notes.pending),
            wakes=tuple(self._time_notes.wakes),
            late=tuple(self._time_notes.late),
            overdue=tuple(self._time_notes.overdue),
            answers=tuple(
                PartAnswer(m.part, self._group.region or "", self.control.worker, m.body)
                for m in self.control.messages
                if isinstance(m, Question)
            ),
        )
