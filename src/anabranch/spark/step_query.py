"""The query of a step: read, exchange, region tasks, reports, as one DataFrame.

It is put together anew for every step, but not the texts of its parts, which change with the
assignment alone. What tasks are told is not in it: that is written into blanks before it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import encode
from anabranch.node.controls import controls_of
from anabranch.node.program import Program
from anabranch.node.worker_home import Homes
from anabranch.plan.boundary import PART, Boundary, Seats, seats
from anabranch.plan.sql import Crossing
from anabranch.plan.step import Input, OperatorState, Plan
from anabranch.sources.port import FileSlice, RangeSlice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.sources.structured_stream import read_by_spark
from anabranch.spark.assembly import Assembly
from anabranch.spark.blanks import AT, TOLD, Blanks
from anabranch.spark.reading import (
    READ_ORDER,
    FileReader,
    PartitionPart,
    ReadOrder,
    ReadPart,
    orders_frame,
    python_producers,
    read_orders,
    read_task,
    tags_of,
)
from anabranch.spark.session import lift_byte_limit
from anabranch.spark.sources import SparkSources
from anabranch.spark.task import REPORT_SCHEMA, TaskSpec, control_part, region_task
from anabranch.spark.transforms import Transforms, shared

_KEPT_TEXTS = 64


@dataclass(frozen=True, slots=True)
class Feed:
    """A view over rows for a level, whose rows they are, and the query that brings them there.

    The query is None where only a transform gets the rows.
    """

    view: str
    producers: tuple[int, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class StepQuery:
    """A step as a query that gives its reports, and the blanks that are to be filled before."""

    frame: DataFrame
    seating: tuple[Seats, ...]
    blanks: Blanks | None


class StepQueries:
    """Makes the queries of one program's steps. For one thread at a time."""

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        store: Path,
        code: str,
        sources: SparkSources,
        homes: Homes | None,
    ) -> None:
        """No call is made yet."""
        self._spark = spark
        self._program = program
        self._store = store
        self._code = code
        self._sources = sources
        self._homes = homes
        self._assembly = Assembly(spark)
        levels = program.physical.levels[1:]
        if all(program.boundary(level.number).is_narrow() for level in levels):
            lift_byte_limit(spark)
        self._texts: dict[tuple[object, ...], str] = {}
        self._readers: dict[tuple[int, int], FileReader] = {}
        self._blanks: dict[int, Blanks] = {}

    @property
    def only_ours(self) -> bool:
        """Whether a query is made without a call to the user's code, so that it may be in vain."""
        physical = self._program.physical
        transforms = any(physical.transforms_before(level.number) for level in physical.levels)
        asking = any(isinstance(n.source, PythonDataSource) for n in physical.sources())
        return not transforms and not asking

    def query(self, plan: Plan) -> StepQuery | None:
        """The query of a step; None where it has no tasks."""
        seating = self._seating(plan)
        frame = self._frame(plan, seating)
        if frame is None:
            return None
        first = self._program.physical.first_exchange
        blanks = None if first is None else self._blanks[self._told(seating, first)]
        return StepQuery(frame, tuple(seating), blanks)

    def fill(self, query: StepQuery, plan: Plan, states: Sequence[OperatorState]) -> None:
        """Write what the tasks are told."""
        first = self._program.physical.first_exchange
        if query.blanks is not None and first is not None:
            controls = controls_of(self._program, plan, states, query.seating, first)
            query.blanks.fill(
                [(control_part(self._program, first, c), encode(c)) for c in controls]
            )

    def _frame(self, plan: Plan, table: list[Seats]) -> DataFrame | None:
        physical = self._program.physical
        before: list[Feed] = []
        job: DataFrame | None = None
        for level in physical.levels[1:]:
            crossing = self._crossing(plan, level.number, table)
            feeds = before + self._read(plan, crossing)
            parts = [feed.text for feed in feeds if feed.text is not None]
            parts += self._transforms(crossing, feeds)
            if level.number == physical.first_exchange:
                parts.append(self._controls(table, crossing))
            if not parts:
                continue
            job = self._assembly.query(" union all ".join(parts))
            if level.exchange:
                job = self._assembly.parted(job, table[level.number].partitions, PART)
            if level.number + 1 == len(physical.levels):
                spec = self._spec(plan, level.number, None)
                names = crossing.boundary.arriving().names
                return self._assembly.mapped(job, names, partial(region_task, spec), REPORT_SCHEMA)
            following = self._crossing(plan, level.number + 1, table)
            before = self._tasks(job, plan, crossing.boundary, following)
        return None

    def _seating(self, plan: Plan) -> list[Seats]:
        """Every level's seats; a level without an exchange sits where the one before sat."""
        found = [Seats(())]
        for level in self._program.physical.levels[1:]:
            seated = seats(level, plan)
            found.append(seated if level.exchange or level.number == 1 else found[-1])
        return found

    def _controls(self, table: list[Seats], crossing: Crossing) -> str:
        """The rows that tasks find their controls in."""
        count = self._told(table, crossing.boundary.level.number)
        view = f"_ab_controls_{count}"
        if count not in self._blanks:
            self._blanks[count] = Blanks(self._spark, count)
            self._assembly.view(self._blanks[count].frame, view)
        return crossing.controls(view, AT, TOLD)

    def _told(self, table: Sequence[Seats], first: int) -> int:
        """How many tasks of the levels from ``first`` on are told something."""
        levels = self._program.physical.levels[first:]
        groups = [(level.number, group.name) for level in levels for group in level.groups]
        return sum(len(table[level].workers(group)) for level, group in groups)

    def _crossing(self, plan: Plan, level: int, table: list[Seats]) -> Crossing:
        boundary = self._program.boundary(level)
        return Crossing(boundary, table[level], plan.placement, self._program.bins)

    def _transforms(self, crossing: Crossing, feeds: Sequence[Feed]) -> list[str]:
        """What brings the rows of transforms to a level, one query each."""
        if not crossing.boundary.transforms:
            return []
        tables = {producer: feed.view for feed in feeds for producer in feed.producers}
        views = Transforms(self._spark, crossing).run(tables)
        return [
            self._text(
                (view, crossing.seats, crossing.placement),
                partial(crossing.from_transform, transform, view),
            )
            for transform, view in views.items()
            if transform in crossing.boundary.producers()
        ]

    def _read(self, plan: Plan, crossing: Crossing) -> list[Feed]:
        """The views of the sources' rows."""
        inputs = {given.source: given for given in plan.inputs}
        producers = crossing.boundary.wanted()
        found: list[Feed] = []
        orders: list[ReadOrder] = []
        for number, node in enumerate(self._program.physical.sources()):
            given = inputs.get(node.name)
            if given is None or not given.slices or node.id not in producers:
                continue
            if read_by_spark(node.source):
                found.append(self._files(node, crossing, given))
            else:
                parts = self._parts(node, given)
                orders += read_orders(node, number, parts, plan)
        if orders:
            found.append(self._python(plan, crossing, orders))
        return found

    def _files(self, node: SourceNode, crossing: Crossing, given: Input) -> Feed:
        slices = [part for part in given.slices if isinstance(part, FileSlice)]
        ordered = bool(crossing.boundary.made_order)
        level = crossing.boundary.level.number
        if (node.id, level) not in self._readers:
            self._readers[node.id, level] = FileReader(self._assembly, node.source, ordered=ordered)
        view = f"_ab_source_{node.id}_{level}"
        self._assembly.view(self._readers[node.id, level].load(slices), view)
        if node.id not in crossing.boundary.producers():
            return Feed(view, (node.id,), None)
        key = (view, crossing.seats, crossing.placement)
        text = self._text(key, lambda: crossing.from_source(node.id, view))
        return Feed(view, (node.id,), text)

    def _parts(self, node: SourceNode, given: Input) -> list[ReadPart]:
        """What Python tasks read of a source: ranges as planned, or partitions asked for now."""
        if isinstance(node.source, PythonDataSource):
            found = self._sources.partitions(node.name, given.slices)
            return [PartitionPart(number, data) for number, data in enumerate(found)]
        return [part for part in given.slices if isinstance(part, RangeSlice)]

    def _python(self, plan: Plan, crossing: Crossing, orders: Sequence[ReadOrder]) -> Feed:
        boundary = crossing.boundary
        producers = python_producers(boundary)
        partitions = crossing.seats.partitions if boundary.level.exchange else None
        spec = self._spec(plan, boundary.level.number - 1, partitions)
        rows = self._assembly.mapped(
            orders_frame(self._assembly, orders),
            [READ_ORDER],
            partial(read_task, spec),
            boundary.made(producers),
        )
        return self._emitted(rows, f"_ab_reads_{boundary.level.number}", crossing, producers)

    def _tasks(
        self, df: DataFrame, plan: Plan, arriving: Boundary, following: Crossing
    ) -> list[Feed]:
        """Run a level's tasks; the view of their rows."""
        level = arriving.level
        boundary = following.boundary
        partitions = following.seats.partitions if boundary.level.exchange else None
        spec = self._spec(plan, level.number, partitions)
        producers = boundary.task_producers()
        made = self._assembly.mapped(
            df, arriving.arriving().names, partial(region_task, spec), boundary.made(producers)
        )
        return [self._emitted(made, f"_ab_level_{level.number}", following, producers)]

    def _emitted(
        self, rows: DataFrame, view: str, crossing: Crossing, producers: Sequence[int]
    ) -> Feed:
        """What Python tasks emitted, for the level and for the transforms before it."""
        boundary = crossing.boundary
        if not boundary.transformed().isdisjoint(producers):
            rows = shared(rows, crossing.seats.partitions)
        self._assembly.view(rows, view)
        key = (view, crossing.seats, crossing.placement)
        taken = [producer for producer in producers if producer in boundary.producers()]
        text = self._text(key, lambda: crossing.from_tasks(taken, view))
        return Feed(view, tuple(producers), text)

    def _text(self, key: tuple[object, ...], make: Callable[[], str]) -> str:
        """A query that changes with the placement alone."""
        if key not in self._texts:
            if len(self._texts) >= _KEPT_TEXTS:
                self._texts.clear()
            self._texts[key] = make()
        return self._texts[key]

    def _spec(self, plan: Plan, level: int, partitions: int | None) -> TaskSpec:
        return TaskSpec(
            str(self._store),
            self._code,
            level,
            plan.step,
            plan.revision,
            partitions,
            tuple(path for path in sys.path if path),
            self._tags(plan),
            self._homes,
        )

    def _tags(self, plan: Plan) -> tuple[tuple[int, tuple[int, ...]], ...]:
        inputs = {given.source: given for given in plan.inputs}
        found = []
        for number, node in enumerate(self._program.physical.sources()):
            given = inputs.get(node.name)
            if given is not None and read_by_spark(node.source):
                slices = [part for part in given.slices if isinstance(part, FileSlice)]
                found.append(tags_of(number, slices))
        return tuple(found)
