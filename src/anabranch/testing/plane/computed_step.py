"""A step that is computed in memory, task by task, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any, cast

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import Attempt, Control, Load, PartitionRead, Report
from anabranch.operators.rows import Rows
from anabranch.operators.states import state_shapes
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import Group, Level
from anabranch.protocol.sources import PythonSource, read_by_spark
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.slices import Slice
from anabranch.store.disk import disk, use_disk
from anabranch.task.program import Program
from anabranch.task.reader import with_positions
from anabranch.task.region_task import RegionTask, TaskPlace
from anabranch.task.worker_home import Homes
from anabranch.testing.plane.chains import Chains
from anabranch.testing.plane.exchange import Arrived, Exchange, TaskShare, ordered, owned_bins
from anabranch.testing.plane.step_memo import (
    DoneStep,
    DoneTask,
    OpenStore,
    Recording,
    Role,
    StepMemo,
)

Attempts = Callable[[int, str, int], Attempt]
"""Gives a new attempt of the task of a level, a group and a worker."""


class ComputedStep:
    """One step. With ``memo``, tasks that were computed before are only performed again."""

    def __init__(
        self,
        program: Program,
        chains: Chains,
        store: OpenStore,
        attempts: Attempts,
        plan: Plan,
        states: Sequence[OperatorState],
        *,
        homes: Homes | None = None,
        memo: StepMemo | None = None,
        recorded: bool = False,
    ) -> None:
        """``recorded``: its tasks can be done again."""
        self._program = program
        self._store = store
        self._attempts = attempts
        self._plan = plan
        self._before = tuple(states)
        self._states = {state.operator: state for state in states}
        self._owners = {a.region: a for a in plan.placement}
        self._homes = homes
        self._memo = memo
        # Other threads of a pipeline write too, so nothing is recorded that nobody asks for.
        self._recording = Recording(disk()) if recorded else None
        self._exchange = Exchange(program, chains, None if memo is None else memo.arrivals)

    def run(self) -> tuple[list[Report], DoneStep]:
        """Run all tasks, level by level."""
        sources = self._read()
        roles: list[Role] = []
        reports = [*sources]
        for level in self._program.physical.levels[1:]:
            done: list[DoneTask] = []
            for group in level.groups:
                for worker in self._plan.workers(group.region):
                    task, report = self._task(level, group, worker)
                    done.append(task)
                    roles.append(Role(worker, task))
                    reports.append(report)
            for task in done:
                token = id(task) if self._memo is not None and task.is_repeatable else None
                for producer, rows in task.emitted.items():
                    self._exchange.put(producer, rows, token)
        return reports, DoneStep(tuple(roles), sources)

    def _read(self) -> tuple[Report, ...]:
        """Each partition is read by the worker that it is assigned to."""
        reports = []
        slices = {given.source: given.slices for given in self._plan.inputs}
        for number, node in enumerate(self._program.physical.sources()):
            read: dict[int, list[PartitionRead]] = {}
            for part in slices.get(node.name, ()):
                if read_by_spark(node.source):
                    continue  # There is no Spark here: such a source has no rows.
                done = self._read_slice(node, number, part)
                read.setdefault(self._plan.reader(node.name, done.partition), []).append(done)
            for worker in sorted(read) or [self._plan.reader(node.name, 0)]:
                attempt = self._attempts(0, node.name, worker)
                mine = tuple(read.get(worker, ()))
                reports.append(Report(attempt, (), (), (), (), {}, read=mine))
        return tuple(reports)

    def _read_slice(self, node: SourceNode, number: int, part: Slice) -> PartitionRead:
        source = cast("PythonSource[Any]", node.source)
        partition, size = part.partition or 0, 0
        batches = with_positions(source.read(part), source.schema, part.first or 0, part.past)
        for place, (batch, positions) in enumerate(batches):
            size += batch.num_rows
            rows = ordered(batch, number, partition, positions)
            self._exchange.put(node.id, rows, (node.name, part, place))
        return PartitionRead(node.name, partition, size, part.first)

    def _task(self, level: Level, group: Group, worker: int) -> tuple[DoneTask, Report]:
        control = self._control(level, group, worker)
        share = TaskShare(
            None if group.region is None else control.owned, self._plan.unkeyed_workers, worker
        )
        arrived = [
            (edge.consumer, edge.place, self._exchange.arriving(edge, share))
            for edge in level.inputs
            if edge.consumer in group.operators
        ]
        attempt = self._attempts(level.number, group.name, worker)
        place = TaskPlace(self._plan.step, self._plan.revision, attempt, self._plan.clock_ns)
        key: Hashable = None
        if self._memo is not None:
            rows = tuple([(name, each.content) for _, name, each in arrived])
            key = self._memo.keys.task(self._plan, control, rows)
            known = self._memo.tasks.get(key)
            if known is not None:
                return known, known.perform(self._store, self._before, place)
        done = self._computed(control, place, arrived)
        if self._memo is not None:
            self._memo.keep_task(key, done)
        return done, done.report

    def _computed(
        self, control: Control, place: TaskPlace, arrived: Sequence[tuple[int, str, Arrived]]
    ) -> DoneTask:
        task = RegionTask(self._program, self._store.root, control, place, self._homes)
        by_consumer: dict[int, list[Rows]] = {}
        recording = self._recording
        with nullcontext() if recording is None else use_disk(recording):
            for consumer, name, each in arrived:
                task.count(name, each.rows)
                by_consumer.setdefault(consumer, []).append(each.rows)
            result = task.run({c: _some(parts) for c, parts in by_consumer.items()}, ())
        mine = control.owned.bits
        read = [
            (m.operator, tuple([run.run.name for run in m.runs if run.bins.bits & mine]))
            for m in control.messages
            if isinstance(m, Load)
        ]
        files = () if recording is None else recording.taken(self._store.root)
        return DoneTask(place, result.report, control.owned, tuple(read), files, result.emitted)

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
        return Control(
            level.number,
            worker,
            group.name,
            worker,
            owned,
            messages,
            profile=self._plan.profile_of(group.region, worker),
        )


def _some(parts: list[Rows]) -> list[Rows]:
    """Those with rows: a producer without any may not say in which order they would be."""
    return [part for part in parts if len(part)] or parts[:1]
