"""Region tasks: the function that Spark runs in Python for each worker of a level.

It moves rows and notes between Arrow batches and ``task/``, which decides what happens to the rows.
A task draws its attempt's number itself, so that two executions of it never share a name.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from anabranch.messages import Attempt, Control, FileTags, Report, encode
from anabranch.operators.rows import Rows
from anabranch.plan.boundary import NOTE
from anabranch.plan.physical import Edge
from anabranch.records.bins import BinSet
from anabranch.spark.code import load_program
from anabranch.spark.failure import carrying_errors
from anabranch.spark.step.rows import (
    batches,
    number_files,
    number_transformed,
    pack_notes,
    pack_rows,
    unpack_edge,
    unpack_notes,
)
from anabranch.spark.worker_memory import freeze_long_lived
from anabranch.task.program import Program
from anabranch.task.region_task import RegionTask
from anabranch.task.task_place import TaskPlace
from anabranch.task.worker_home import Homes

REPORT_SCHEMA = pa.schema([pa.field(NOTE, pa.binary())])


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What the tasks of one level know before they see a row.

    ``paths`` is the driver's module search path. ``homes`` is where workers keep copies of state;
    None if they read it in the store. Step, revision, tags and the number of partitions behind the
    next exchange are for tasks that get no control. For all others the control has them, so that
    the spec, which is part of the query, is the same in every step.
    """

    store: str
    code: str
    level: int
    paths: tuple[str, ...]
    homes: Homes | None = None
    step: int = 0
    revision: int = 0
    tags: FileTags = ()
    next_partitions: int | None = None

    def program(self) -> Program:
        """The program, loaded once per process."""
        sys.path.extend(path for path in self.paths if path not in sys.path)
        return load_program(Path(self.store), self.code)

    def attempt(self, group: str, worker: int) -> Attempt:
        """A new attempt of a task."""
        return Attempt(self.level, group, worker, secrets.token_hex(16))


def region_task(spec: TaskSpec, arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one worker's share of a level; yield its rows and notes."""
    freeze_long_lived()
    with carrying_errors():
        started = time.perf_counter()
        # Always to the end: Spark reuses such workers.
        got = list(arriving)
        if got:
            received = time.perf_counter() - started
            yield from _LevelTask(spec, pa.Table.from_batches(got), received).run()


class _LevelTask:
    def __init__(self, spec: TaskSpec, table: pa.Table, received: float) -> None:
        self._spec = spec
        self._table = table
        self._received = received
        self._program = spec.program()
        self._physical = self._program.physical
        self._notes = unpack_notes(table)
        self._next_partitions: int | None = None

    def run(self) -> Iterator[pa.RecordBatch]:
        control = self._control()
        if control is None:
            yield from self._emit([], {})
            return
        self._next_partitions = control.next_partitions
        attempt = self._spec.attempt(control.group, control.worker)
        place = TaskPlace(control.step, control.revision, attempt, control.clock_ns)
        task = RegionTask(self._program, Path(self._spec.store), control, place, self._spec.homes)
        arrived: dict[int, list[Rows]] = {}
        for edge in self._inputs(control):
            rows = self._number(unpack_edge(self._table, edge), edge, dict(control.tags))
            task.count(edge.place, rows)
            arrived.setdefault(edge.consumer, []).append(rows)
        result = task.run(arrived, self._notes.attempts)
        result.report.seconds["receive"] = self._received
        yield from self._emit([result.report], result.emitted)

    def _control(self) -> Control | None:
        """The control row of this task. A task without an exchange before it needs none."""
        own = [c for c in self._notes.controls if c.level == self._spec.level]
        if own:
            return own[0]
        first = self._physical.first_exchange
        if first is not None and self._spec.level >= first:
            return None
        spec = self._spec
        group = self._physical.levels[spec.level].groups[0].name
        return Control(
            spec.level,
            _partition(),
            group,
            _partition(),
            BinSet(),
            (),
            step=spec.step,
            revision=spec.revision,
            tags=spec.tags,
            next_partitions=spec.next_partitions,
        )

    def _inputs(self, control: Control) -> list[Edge]:
        level = self._physical.levels[self._spec.level]
        group = next(g for g in level.groups if g.name == control.group)
        return [edge for edge in level.inputs if edge.consumer in group.operators]

    def _number(self, rows: Rows, edge: Edge, tags: Mapping[int, Sequence[int]]) -> Rows:
        """The rows with their files numbered, if they come straight from files."""
        if rows.order is None:
            return rows
        if self._physical.is_transform(edge.producer):
            return replace(rows, order=number_transformed(rows.order, tags))
        for number, source in enumerate(self._physical.sources()):
            if source.id == edge.producer and number in tags:
                return replace(rows, order=number_files(rows.order, number, tags[number]))
        return rows

    def _emit(self, reports: list[Report], emitted: dict[int, Rows]) -> Iterator[pa.RecordBatch]:
        every = [*self._notes.reports, *reports]
        if not self._physical.leaving(self._spec.level):
            notes = pa.array([encode(report) for report in every], type=pa.binary())
            yield pa.RecordBatch.from_arrays([notes], schema=REPORT_SCHEMA)
            return
        boundary = self._program.boundary(self._spec.level + 1)
        producers = boundary.task_producers()
        for producer, rows in emitted.items():
            yield from batches(pack_rows(boundary, producers, producer, rows))
        outgoing = self._outgoing(every, reports, exchanged=boundary.level.exchange)
        yield from batches(pack_notes(boundary, producers, outgoing))

    def _outgoing(
        self, every: list[Report], own: list[Report], *, exchanged: bool
    ) -> list[tuple[int, bytes]]:
        """The notes for the next level, each with its partition."""
        # A task that only forwards reports knows one partition that always exists.
        partitions = (self._next_partitions or 1) if exchanged else None
        here = _partition()
        seat = here if partitions is None else here % partitions
        notes = [(seat, encode(report)) for report in every]
        for report in own:
            reached = [here] if partitions is None else range(partitions)
            notes += [(part, encode(report.attempt)) for part in reached]
        for control in self._notes.controls:
            if control.level > self._spec.level:
                part = control_part(self._program, self._spec.level + 1, control)
                notes.append((part, encode(control)))
        return notes


def control_part(program: Program, level: int, control: Control) -> int:
    """The partition of ``level`` that a control row passes through on the way to its task."""
    between = program.physical.levels[level + 1 : control.level + 1]
    return 0 if any(each.exchange for each in between) else control.partition


def _partition() -> int:
    return int(TaskContext.get().partitionId())  # type: ignore[union-attr]
