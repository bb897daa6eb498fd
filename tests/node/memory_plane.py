"""A data plane without Spark: the runner's journal and the region tasks run for real.

It moves rows between tasks in this process. What it does not have: SQL (chains may only name
columns), retries, and any parallelism. Rows reach a task backwards, as a shuffle might bring them.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import KeyByNode
from anabranch.messages import Attempt, Barrier, Control, End, Load, Message, Report
from anabranch.node.program import Program
from anabranch.node.region_task import RegionTask, TaskPlace, TaskResult
from anabranch.operators.order import Order, concatenate
from anabranch.operators.rows import Rows
from anabranch.operators.states import state_shapes
from anabranch.plan.physical import Edge, Group, Level
from anabranch.plan.step import Assignment, OperatorState, Plan
from anabranch.sources.port import PythonSource, RangeSlice
from anabranch.state.bins import BinSet, bin_of

_numbers = itertools.count()


@dataclass
class MemoryPlane:
    """Runs steps in this process.

    ``mixed`` is how many of the next runs let two workers use different attempts of a read task;
    ``before`` is called with every plan, and may raise.
    """

    program: Program
    store: Path
    mixed: int = 0
    before: Callable[[Plan], None] = lambda plan: None
    ran: list[Plan] = field(default_factory=list)

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        self.ran.append(plan)
        self.before(plan)
        return _Step(self, plan, {state.operator: state for state in states}).run()


class _Step:
    def __init__(self, plane: MemoryPlane, plan: Plan, states: dict[str, OperatorState]) -> None:
        self._program = plane.program
        self._store = plane.store
        self._plan = plan
        self._states = states
        self._owners = {a.region: a for a in plan.placement}
        self._made: dict[int, list[Rows]] = {}
        self._reports: list[Report] = []
        self._mixed = plane.mixed > 0
        plane.mixed -= self._mixed

    def run(self) -> list[Report]:
        used = [self._read()]
        if self._mixed:
            used.append(self._read())
        for level in self._program.physical.levels[1:]:
            results = [
                self._task(level, group, worker, used[worker % len(used)])
                for group in level.groups
                for worker in range(self._count(group))
            ]
            for result in results:
                for producer, rows in result.emitted.items():
                    self._made.setdefault(producer, []).append(rows)
            self._reports += [result.report for result in results]
            used = [tuple(result.report.attempt for result in results)]
        return self._reports

    def _read(self) -> tuple[Attempt, ...]:
        attempts = []
        slices = {given.source: given.slices for given in self._plan.inputs}
        for number, node in enumerate(self._program.physical.sources()):
            source = cast(PythonSource, node.source)
            rows = [
                _ordered(batch, number, part)
                for part in slices.get(node.name, ())
                if isinstance(part, RangeSlice)
                for batch in source.read(part)
            ]
            self._made[node.id] = rows
            attempts.append(Attempt(0, node.name, 0, f"attempt-{next(_numbers)}"))
        self._reports += [Report(attempt, (), (), (), (), {}) for attempt in attempts]
        return tuple(attempts)

    def _count(self, group: Group) -> int:
        if group.region is None:
            return self._plan.unkeyed_workers
        return self._owners[group.region].count

    def _task(
        self, level: Level, group: Group, worker: int, consumed: tuple[Attempt, ...]
    ) -> TaskResult:
        control = self._control(level, group, worker)
        attempt = Attempt(level.number, group.name, worker, f"attempt-{next(_numbers)}")
        place = TaskPlace(self._plan.step, self._plan.revision, attempt, self._plan.clock_ns)
        task = RegionTask(self._program, self._store, control, place)
        arrived: dict[int, list[Rows]] = {}
        for edge in level.inputs:
            if edge.consumer in group.operators:
                rows = self._arriving(edge, group, worker)
                task.count(edge.place, rows)
                arrived.setdefault(edge.consumer, []).append(rows)
        return task.run(arrived, consumed)

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
        end = () if self._plan.ending is None else (End(self._plan.ending),)
        messages: tuple[Message, ...] = (*loads, *end, Barrier(self._plan.step))
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
