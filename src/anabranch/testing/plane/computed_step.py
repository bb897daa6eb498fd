"""A step that is computed in memory, task by task, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import Attempt, Control, Load, PartitionRead, Report
from anabranch.operators.rows import Rows
from anabranch.operators.states import state_shapes
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import Group, Level, SeenBy, TimeAssignment
from anabranch.protocol.data_plane import WATCHED
from anabranch.protocol.sources import PythonSource
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.slices import FileSlice, OffsetSlice, Slice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.store.disk import Disk, disk, use_disk
from anabranch.task.event_times import LatestTimes, told_times
from anabranch.task.program import Program
from anabranch.task.reader import with_positions, without_own_times
from anabranch.task.region_task import RegionTask
from anabranch.task.task_place import TaskPlace
from anabranch.task.worker_home import Homes
from anabranch.testing.plane.chains import Chains
from anabranch.testing.plane.exchange import Arrived, Exchange, TaskShare, ordered, owned_bins
from anabranch.testing.plane.outside_sources import read_input_file, read_offsets_between
from anabranch.testing.plane.step_memo import (
    DoneStep,
    DoneTask,
    OpenStore,
    Recording,
    Role,
    StepMemo,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a slice in one partition; ``numbered`` is its number if it has that in every step."""

    node: SourceNode
    number: int
    partition: int
    part: Slice
    batches: Iterable[pa.RecordBatch]
    numbered: int | None = None
    first: int | None = None


class ComputedStep:
    """One step. With ``memo``, tasks that were computed before are only performed again."""

    def __init__(
        self,
        program: Program,
        chains: Chains,
        store: OpenStore,
        attempts: Callable[[int, str, int], Attempt],
        plan: Plan,
        states: Sequence[OperatorState],
        *,
        homes: Homes | None = None,
        memo: StepMemo | None = None,
        recorded: bool = False,
    ) -> None:
        """``attempts`` makes one of a level, a group and a worker.

        ``recorded``: its tasks can be done again.
        """
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
        self._clock_us = plan.clock_ns // 1000
        known = {} if memo is None else memo.arrivals
        self._exchange = Exchange(program, chains, plan, known)

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
                token = task if self._memo is not None and task.is_repeatable else None
                for producer, rows in task.emitted.items():
                    self._exchange.put(producer, rows, token)
        watched = self._watched()
        return [*reports, *watched], DoneStep(tuple(roles), (*sources, *watched))

    def _watched(self) -> tuple[Report, ...]:
        """What Spark would see of event times; nothing if there is nothing to see."""
        edges = [edge for level in self._program.physical.levels for edge in level.inputs]
        seen = [e for e in edges if e.assignment and e.assignment.seen_by is not SeenBy.READER]
        times = tuple([time for edge in seen for time in self._exchange.latest(edge)])
        if not times:
            return ()
        return (Report(self._attempts(0, WATCHED, 0), (), (), (), (), {}, times=times),)

    def _read(self) -> tuple[Report, ...]:
        """Each partition is read by the worker that it is assigned to."""
        reports = []
        slices = {given.source: given.slices for given in self._plan.inputs}
        for number, node in enumerate(self._program.physical.sources()):
            read: dict[int, list[PartitionRead]] = {}
            times: dict[int, LatestTimes] = {}
            assigned = self._read_assignments(node)
            for place, part in enumerate(slices.get(node.name, ())):
                for piece in self._pieces(node, number, place, part):
                    worker = self._plan.reader(node.name, piece.partition)
                    seen = times.setdefault(worker, LatestTimes(assigned, self._clock_us))
                    size = self._put(piece, seen)
                    # Of files that Spark would read nobody reports anything.
                    if not isinstance(part, FileSlice):
                        done = PartitionRead(node.name, piece.partition, size, piece.first)
                        read.setdefault(worker, []).append(done)
            for worker in sorted(read) or [self._plan.reader(node.name, 0)]:
                attempt = self._attempts(0, node.name, worker)
                mine = tuple(read.get(worker, ()))
                found = times[worker].found() if worker in times else ()
                reports.append(Report(attempt, (), (), (), (), {}, read=mine, times=found))
        return tuple(reports)

    def _read_assignments(self, node: SourceNode) -> list[TimeAssignment]:
        """Where rows get times that the read tasks of a source see."""
        levels = range(1, len(self._program.physical.levels))
        every = [a for n in levels for a in self._program.boundary(n).assignments(node.id)]
        return [each for each in dict.fromkeys(every) if each.seen_by is SeenBy.READER]

    def _pieces(self, node: SourceNode, number: int, place: int, part: Slice) -> Iterator[Piece]:
        """What is read of a slice, partition by partition."""
        if isinstance(part, FileSlice):
            yield Piece(node, number, place, part, [read_input_file(node.source, part)])
        elif isinstance(part, OffsetSlice):
            source = cast("PythonDataSource", node.source)
            for partition, batches in read_offsets_between(node.name, source, part):
                yield Piece(node, number, partition, part, batches)
        else:
            read = cast("PythonSource[Any]", node.source).read
            yield Piece(node, number, part.partition, part, read(part), part.partition, part.first)

    def _put(self, piece: Piece, times: LatestTimes) -> int:
        """Give rows to the exchange, in their order; says how many."""
        size, node, part = 0, piece.node, piece.part
        read = with_positions(piece.batches, node.source.schema, part.first or 0, part.past)
        for place, (batch, positions) in enumerate(read):
            size += batch.num_rows
            times.see(batch, piece.numbered)
            told = told_times(node.name, batch) if times.told else None
            plain = without_own_times(batch, node.source.schema)
            rows = ordered(plain, piece.number, piece.partition, positions, told)
            self._exchange.put(node.id, rows, (node.name, part, piece.partition, place))
        return size

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
        with nullcontext() if recording is None else use_disk(cast("Disk", recording)):
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
        shapes = [shape for each in operators if each is not None for shape in state_shapes(each)]
        states = [self._states[shape.name] for shape in shapes]
        loads = [Load(state.operator, state.runs, state.live) for state in states]
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
