"""A data plane without Spark: the node, the journal and the region tasks run for real.

It moves rows between tasks in this process. What it does not have: SQL (chains may only name
columns) and any parallelism. Rows reach a task backwards, as a shuffle might bring them. As Spark
does, it may run attempts whose work is not used, lose a report, let two tasks use different
attempts of a third, and let attempts go on long after their step is over.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import KeyByNode
from anabranch.errors import AnabranchError, ReadFailed
from anabranch.messages import Attempt, Control, Load, Report
from anabranch.node.program import Program
from anabranch.node.region_task import RegionTask, TaskPlace
from anabranch.node.worker_home import Homes
from anabranch.operators.order import Order, concatenate
from anabranch.operators.rows import Rows
from anabranch.operators.states import state_shapes
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import Edge, Group, Level
from anabranch.plan.step import Assignment, OperatorState, Plan
from anabranch.sources.port import PythonSource, RangeSlice
from anabranch.state.bins import BinSet, bin_of
from anabranch.state.disk import disk, use_disk
from anabranch.testing.step_memo import DoneStep, DoneTask, OpenStore, Recording, StepMemo


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely it is, in each step, that something happens to one of its tasks.

    ``retried``: an attempt is repeated and its work not used. ``late``: one goes on after the step
    is over. ``mixed``: two tasks use different attempts of another. ``unreported``: a report is
    lost. ``failed``: the step fails.
    """

    retried: float = 0.0
    late: float = 0.0
    mixed: float = 0.0
    unreported: float = 0.0
    failed: float = 0.0


@dataclass
class MemoryPlane:
    """Runs steps in this process.

    ``mixed`` is how many of the next runs let two workers use different attempts of a read task;
    ``before`` is called with every plan, and may raise. With ``memo``, a step that was computed
    before is not computed again.
    """

    program: Program
    store: Path
    mixed: int = 0
    before: Callable[[Plan], None] = lambda plan: None
    ran: list[Plan] = field(default_factory=list)
    random: Random = field(default_factory=Random)
    chances: Chances = field(default_factory=Chances)
    memo: StepMemo | None = None
    homes: Homes | None = None
    #: attempts that go on: each is one more action of somebody whose work nobody waits for
    late: deque[Callable[[], None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._open = OpenStore(self.store)

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step and give the reports of all its tasks."""
        self.ran.append(plan)
        self.before(plan)
        if self._happens(self.chances.failed):
            raise ReadFailed("a task was lost", where=f"step {plan.step}", do="Run it again.")
        done = None if self.memo is None else self.memo.find(plan, states)
        if done is None:
            reports, done = _Step(self, plan, states).run()
            if self.memo is not None:
                self.memo.keep(plan, states, done)
        else:
            reports = self._perform(done, plan, states)
        return self._disturbed(_linked(reports), done, plan, states)

    def go_on(self) -> None:
        """Let an attempt of a step that is over do its work. Nobody hears if it fails."""
        work = self.late.popleft()
        try:
            work()
        except AnabranchError:
            return

    def attempt(self, level: int, group: str, worker: int) -> Attempt:
        """A new attempt of a task."""
        return Attempt(level, group, worker, f"{self.random.getrandbits(128):032x}")

    def _perform(self, done: DoneStep, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        names = done.names(states)
        reports = [_empty(self.attempt(a.level, a.group, a.worker)) for a in done.sources]
        for task in done.tasks:
            place = self._place(plan, task)
            reports.append(task.perform(self._open, states, place, names))
        return reports

    def _place(self, plan: Plan, task: DoneTask) -> TaskPlace:
        old = task.place.attempt
        attempt = self.attempt(old.level, old.group, old.worker)
        return TaskPlace(plan.step, plan.revision, attempt, plan.clock_ns)

    def _disturbed(
        self,
        reports: list[Report],
        done: DoneStep,
        plan: Plan,
        states: Sequence[OperatorState],
    ) -> list[Report]:
        """What Spark makes of the reports: more attempts, fewer reports, other attempts used."""
        states = tuple(states)
        task = self.random.choice(done.tasks)
        place, names = self._place(plan, task), done.names(states)
        if self._happens(self.chances.retried):
            task.perform(self._open, states, place, names)
        elif self._happens(self.chances.late):
            self.late.append(lambda: _drop(task.perform(self._open, states, place, names)))

        def again(attempt: Attempt) -> Report:
            return self._again(attempt, done, plan, states)

        using = [place for place, report in enumerate(reports) if report.consumed]
        if self.mixed > 0:
            self.mixed -= 1
            reports = self._with_another(reports, using[0], 0, again)
        elif self._happens(self.chances.mixed):
            chosen = self.random.choice(using)
            number = self.random.randrange(len(reports[chosen].consumed))
            reports = self._with_another(reports, chosen, number, again)
        if self._happens(self.chances.unreported):
            reports.pop(self.random.randrange(len(reports)))
        return reports

    def _with_another(
        self,
        reports: list[Report],
        place: int,
        number: int,
        again: Callable[[Attempt], Report],
    ) -> list[Report]:
        """Reports of which one used another attempt of a task than the others did."""
        used = list(reports[place].consumed)
        first = next(report for report in reports if report.attempt == used[number])
        other = msgspec.structs.replace(again(used[number]), consumed=first.consumed)
        used[number] = other.attempt
        changed = msgspec.structs.replace(reports[place], consumed=tuple(used))
        return [*reports[:place], changed, *reports[place + 1 :], other]

    def _again(
        self, attempt: Attempt, done: DoneStep, plan: Plan, states: Sequence[OperatorState]
    ) -> Report:
        """Let a task be done by another attempt."""
        for task in done.tasks:
            old = task.place.attempt
            same = (old.level, old.group, old.worker)
            if same == (attempt.level, attempt.group, attempt.worker):
                place = self._place(plan, task)
                return task.perform(self._open, states, place, done.names(states))
        return _empty(self.attempt(attempt.level, attempt.group, attempt.worker))

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


class _Step:
    """A step that is computed, and recorded."""

    def __init__(self, plane: MemoryPlane, plan: Plan, states: Sequence[OperatorState]) -> None:
        self._plane = plane
        self._program = plane.program
        self._store = plane.store
        self._plan = plan
        self._before = tuple(states)
        self._states = {state.operator: state for state in states}
        self._owners = {a.region: a for a in plan.placement}
        self._made: dict[int, list[Rows]] = {}

    def run(self) -> tuple[list[Report], DoneStep]:
        sources = self._read()
        tasks: list[DoneTask] = []
        recording = Recording(disk())
        # Other threads of a pipeline write too, so nothing is recorded that nobody asks for.
        recorded = self._plane.memo is not None or self._plane.chances != Chances()
        with use_disk(recording) if recorded else nullcontext():
            for level in self._program.physical.levels[1:]:
                made: dict[int, list[Rows]] = {}
                for group in level.groups:
                    for worker in self._plan.workers(group.region):
                        tasks.append(self._task(level, group, worker, made, recording))
                for producer, rows in made.items():
                    self._made.setdefault(producer, []).extend(rows)
        reports = [*map(_empty, sources), *(task.report for task in tasks)]
        return reports, DoneStep(self._before, tuple(tasks), sources)

    def _read(self) -> tuple[Attempt, ...]:
        """Each partition is read by the worker that it is assigned to."""
        attempts = []
        slices = {given.source: given.slices for given in self._plan.inputs}
        for number, node in enumerate(self._program.physical.sources()):
            source = cast(PythonSource, node.source)
            made = self._made.setdefault(node.id, [])
            parts = [p for p in slices.get(node.name, ()) if isinstance(p, RangeSlice)]
            readers = [self._plan.reader(node.name, part.partition) for part in parts]
            for worker in sorted(set(readers)) or [self._plan.reader(node.name, 0)]:
                for part, reader in zip(parts, readers, strict=True):
                    if reader == worker:
                        made += [_ordered(batch, number, part) for batch in source.read(part)]
                attempts.append(self._plane.attempt(0, node.name, worker))
        return tuple(attempts)

    def _task(
        self,
        level: Level,
        group: Group,
        worker: int,
        made: dict[int, list[Rows]],
        recording: Recording,
    ) -> DoneTask:
        control = self._control(level, group, worker)
        attempt = self._plane.attempt(level.number, group.name, worker)
        place = TaskPlace(self._plan.step, self._plan.revision, attempt, self._plan.clock_ns)
        task = RegionTask(self._program, self._store, control, place, self._plane.homes)
        arrived: dict[int, list[Rows]] = {}
        for edge in level.inputs:
            if edge.consumer in group.operators:
                rows = self._arriving(edge, group, worker)
                task.count(edge.place, rows)
                arrived.setdefault(edge.consumer, []).append(rows)
        result = task.run(arrived, ())
        for producer, emitted in result.emitted.items():
            made.setdefault(producer, []).append(emitted)
        reads = tuple(m.operator for m in control.messages if isinstance(m, Load))
        return DoneTask(place, result.report, control.owned, reads, recording.taken(self._store))

    def _control(self, level: Level, group: Group, worker: int) -> Control:
        operators = [self._program.operators.get(node) for node in group.operators]
        names = [
            shape.name
            for operator in operators
            if operator is not None
            for shape in state_shapes(operator)
        ]
        loads = [Load(n, self._states[n].runs, self._states[n].live) for n in names]
        owned = BinSet()
        if group.region is not None:
            owned = owned_bins(self._owners[group.region], worker)
        messages = messages_for(self._plan, group.region, worker, loads)
        return Control(level.number, worker, group.name, worker, owned, messages)

    def _arriving(self, edge: Edge, group: Group, worker: int) -> Rows:
        rows = _joined(self._made.get(edge.producer, []), self._program, edge.producer)
        keys, hashes = rows.keys, rows.hashes
        if edge.distributes:
            named = [n for n in edge.chain if isinstance(n, KeyByNode)][-1].keys
            keys = pa.table([rows.values.column(text) for _, text in named], schema=edge.keys)
            hashes = hashes_of(keys)
        values = rows.values
        if edge.arguments is not None:
            columns = {name: values.column(text) for name, text in edge.arguments}
            values = pa.table(columns or {"_": pa.nulls(len(rows))})
        if group.region is None:
            mine = np.arange(len(rows)) % self._plan.unkeyed_workers == worker
        else:
            assert hashes is not None
            owners = np.array(self._owners[group.region].workers)
            mine = owners[bin_of(hashes, self._program.bins)] == worker
        places = np.flatnonzero(mine)[::-1]
        order = rows.order
        return Rows(
            values.take(pa.array(places)),
            None if hashes is None else hashes[places],
            None if keys is None else keys.take(pa.array(places)),
            None if order is None or not edge.ordered else order.take(places),
        )


def owned_bins(assignment: Assignment, worker: int) -> BinSet:
    """The bins that a worker has."""
    return BinSet.of(b for b, owner in enumerate(assignment.workers) if owner == worker)


def hashes_of(keys: pa.Table) -> np.ndarray[Any, Any]:
    """A hash of each key, spread over all bins."""
    rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    small = [zlib.crc32(repr(row).encode()) for row in rows]
    return (np.array(small, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)


def _ordered(batch: pa.RecordBatch, number: int, part: RangeSlice) -> Rows:
    size = batch.num_rows
    first = np.full(size, (number << 32) + part.partition, dtype=np.int64)
    position = np.arange(part.start, part.start + size, dtype=np.int64)
    order = Order((first, position, np.zeros(size, dtype=np.int64)))
    return Rows(pa.Table.from_batches([batch]), order=order)


def _joined(pieces: Sequence[Rows], program: Program, producer: int) -> Rows:
    if not pieces:
        empty = program.physical.schemas[producer].empty_table()
        key = program.typed.key(producer)
        keys = None if key is None else key.empty_table()
        return Rows(empty, np.empty(0, dtype=np.uint64), keys, None)
    orders = [rows.order for rows in pieces if rows.order is not None]
    hashes = [rows.hashes for rows in pieces if rows.hashes is not None]
    keys = [rows.keys for rows in pieces if rows.keys is not None]
    return Rows(
        pa.concat_tables([rows.values for rows in pieces]),
        np.concatenate(hashes) if hashes else None,
        pa.concat_tables(keys) if keys else None,
        concatenate(orders) if orders else None,
    )


def _empty(attempt: Attempt) -> Report:
    return Report(attempt, (), (), (), (), {})


def _drop(report: Report) -> None:
    """Nobody asks for the report of a late attempt."""


def _linked(reports: Sequence[Report]) -> list[Report]:
    """Reports that say which attempts their tasks used: all of the level before."""
    levels = sorted({report.attempt.level for report in reports})
    by_level = {
        level: tuple(r.attempt for r in reports if r.attempt.level == level) for level in levels
    }
    before = dict(zip(levels[1:], levels, strict=False))
    return [
        msgspec.structs.replace(
            report,
            consumed=by_level[before[report.attempt.level]]
            if report.attempt.level in before
            else (),
        )
        for report in reports
    ]
