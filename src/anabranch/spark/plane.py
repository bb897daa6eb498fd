"""A step as one Spark job with one action: read, exchange, region tasks, reports.

The job is put together anew for every step; only its routing expressions, which change with the
assignment alone, are kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from anabranch.dataflow.graph import SourceNode
from anabranch.dataflow.schema import to_ddl
from anabranch.messages import Barrier, Control, Load, Message, Report, encode
from anabranch.node.program import Program
from anabranch.plan.boundary import Boundary, Seats, seats
from anabranch.plan.physical import Group, Level
from anabranch.plan.step import Assignment, Input, OperatorState, Plan
from anabranch.sources.files import FileSource
from anabranch.sources.port import FileSlice
from anabranch.spark.exchange import (
    control_rows,
    exchange,
    from_source,
    from_tasks,
    route,
    united,
    with_route,
)
from anabranch.spark.failure import translated
from anabranch.spark.reading import (
    ReadOrder,
    orders_frame,
    python_producers,
    read_files,
    read_orders,
    read_task,
    tags_of,
)
from anabranch.spark.task import REPORT_SCHEMA, TaskSpec, control_part, region_task
from anabranch.state.bins import BinSet

_KEPT_ROUTES = 64
_decode_report = msgspec.msgpack.Decoder(Report).decode


@dataclass
class SparkPlane:
    """Runs steps on Spark. One step at a time."""

    spark: SparkSession
    program: Program
    store: Path
    code: str
    _routes: dict[tuple[object, ...], Column] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step; gives the reports of all its tasks. Raises an ``AnabranchError``."""
        started = time.perf_counter()
        try:
            job = self._job(plan, states)
            if job is None:
                return []
            built = time.perf_counter()
            rows = job.collect()
        except PySparkException as error:
            raise translated(error) from error
        except Exception as error:
            if "Py4J" not in type(error).__name__:
                raise
            raise translated(error) from error
        finished = time.perf_counter()
        self.timings = {"build": built - started, "job": finished - built}
        return [_decode_report(bytes(row[0])) for row in rows]

    def _job(self, plan: Plan, states: Sequence[OperatorState]) -> DataFrame | None:
        levels = self.program.physical.levels
        table = self._seating(plan)
        df = self._read(plan, table[1])
        first = levels[1]
        if first.exchange:
            controls = self._controls(plan, states, table)
            notes = [(control_part(self.program, 1, c), encode(c)) for c in controls]
            rows = control_rows(self.spark, self.program.boundary(1), notes)
            df = rows if df is None else united([df, rows])
        if df is None:
            return None
        for level in levels[1:]:
            boundary = self.program.boundary(level.number)
            if level.exchange:
                df = self._exchanged(df, boundary, plan, table[level.number])
            df = self._tasks(df, plan, level, table)
        return df

    def _seating(self, plan: Plan) -> list[Seats]:
        """Every level's seats; a level without an exchange sits where the one before sat."""
        found = [Seats(())]
        for level in self.program.physical.levels[1:]:
            seated = seats(level, plan.placement, plan.unkeyed_workers)
            found.append(seated if level.exchange or level.number == 1 else found[-1])
        return found

    def _read(self, plan: Plan, seated: Seats) -> DataFrame | None:
        boundary = self.program.boundary(1)
        inputs = {given.source: given for given in plan.inputs}
        parts: list[DataFrame] = []
        orders: list[ReadOrder] = []
        for number, node in enumerate(self.program.physical.sources()):
            given = inputs.get(node.name)
            if given is None or not given.slices or node.id not in boundary.producers():
                continue
            if isinstance(node.source, FileSource):
                parts.append(self._files(node, boundary, given))
            else:
                orders += read_orders(node, number, given, max(plan.unkeyed_workers, 1))
        if orders:
            parts.append(self._python(plan, boundary, seated, orders))
        return united(parts) if parts else None

    def _files(self, node: SourceNode, boundary: Boundary, given: Input) -> DataFrame:
        source = cast("FileSource", node.source)
        slices = [part for part in given.slices if isinstance(part, FileSlice)]
        df = read_files(self.spark, source, slices, ordered=bool(boundary.order))
        return from_source(df, boundary, node.id)

    def _python(
        self, plan: Plan, boundary: Boundary, seated: Seats, orders: Sequence[ReadOrder]
    ) -> DataFrame:
        producers = python_producers(boundary)
        partitions = seated.partitions if boundary.level.exchange else None
        spec = self._spec(plan, 0, partitions)
        made = to_ddl(boundary.made(producers))
        rows = orders_frame(self.spark, orders)
        return from_tasks(rows.mapInArrow(partial(read_task, spec), made), boundary, producers)

    def _exchanged(self, df: DataFrame, boundary: Boundary, plan: Plan, seated: Seats) -> DataFrame:
        key = (boundary.level.number, plan.placement, plan.unkeyed_workers)
        if key not in self._routes:
            if len(self._routes) >= _KEPT_ROUTES:
                self._routes.clear()
            self._routes[key] = route(boundary, seated, plan.placement, self.program.bins)
        return exchange(with_route(df, self._routes[key]), seated.partitions)

    def _tasks(self, df: DataFrame, plan: Plan, level: Level, table: list[Seats]) -> DataFrame:
        levels = self.program.physical.levels
        if level.number + 1 == len(levels):
            spec = self._spec(plan, level.number, None)
            return df.mapInArrow(partial(region_task, spec), to_ddl(REPORT_SCHEMA))
        following = self.program.boundary(level.number + 1)
        partitions = table[level.number + 1].partitions if following.level.exchange else None
        spec = self._spec(plan, level.number, partitions)
        producers = list(following.producers())
        made = df.mapInArrow(partial(region_task, spec), to_ddl(following.made(producers)))
        return from_tasks(made, following, producers)

    def _spec(self, plan: Plan, level: int, partitions: int | None) -> TaskSpec:
        return TaskSpec(
            str(self.store),
            self.code,
            level,
            plan.step,
            plan.revision,
            partitions,
            tuple(path for path in sys.path if path),
        )

    def _controls(
        self, plan: Plan, states: Sequence[OperatorState], table: list[Seats]
    ) -> list[Control]:
        by_operator = {state.operator: state for state in states}
        tags = self._tags(plan)
        found = []
        for level in self.program.physical.levels[1:]:
            for group in level.groups:
                for worker in range(table[level.number].count(group.name)):
                    messages = self._messages(plan, group, by_operator)
                    found.append(
                        Control(
                            level.number,
                            table[level.number].first(group.name) + worker,
                            group.name,
                            worker,
                            _owned(plan.placement, group.region, worker),
                            messages,
                            tags if level.number == 1 else (),
                        )
                    )
        return found

    def _messages(
        self, plan: Plan, group: Group, states: dict[str, OperatorState]
    ) -> tuple[Message, ...]:
        loads = []
        for node in group.operators:
            operator = self.program.operators.get(node)
            if operator is not None:
                state = states[operator.name]
                loads.append(Load(operator.name, state.runs, state.live))
        return (*loads, Barrier(plan.step))

    def _tags(self, plan: Plan) -> tuple[tuple[int, tuple[int, ...]], ...]:
        inputs = {given.source: given for given in plan.inputs}
        found = []
        for number, node in enumerate(self.program.physical.sources()):
            given = inputs.get(node.name)
            if given is not None and isinstance(node.source, FileSource):
                slices = [part for part in given.slices if isinstance(part, FileSlice)]
                found.append(tags_of(number, slices))
        return tuple(found)


def _owned(placement: Sequence[Assignment], region: str | None, worker: int) -> BinSet:
    for assignment in placement:
        if assignment.region == region:
            return BinSet.of(b for b, owner in enumerate(assignment.workers) if owner == worker)
    return BinSet()
