"""Build the DataFrame of a step: read, exchange, region tasks, reports.

The messages to tasks and the placement of bins are not in it: they are written before it runs. So
the queries of two steps differ only in their files and in the number of workers, and the plan of
one serves the other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from anabranch.dataflow.graph import SourceNode
from anabranch.plan.boundary import Boundary, Seats
from anabranch.plan.sql import Crossing
from anabranch.records.plan import Plan
from anabranch.spark.jvm import Java
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.inputs import Inputs, LevelInput, LoadedFiles
from anabranch.spark.step.late_rows import AT, PAYLOAD, Blanks
from anabranch.spark.step.reading import READ_ORDER, python_producers, read_task
from anabranch.spark.step.routes import Routes
from anabranch.spark.step.task import REPORT_SCHEMA, TaskSpec, region_task
from anabranch.spark.step.transforms import run_transforms, shared_table
from anabranch.spark.step.watched import CutViews
from anabranch.task.program import Program
from anabranch.task.worker_home import Homes

LEAST_CONTROLS = 16


@dataclass
class StepBlanks:
    """The blanks of one program's steps: control rows, and orders of read tasks."""

    assembly: Assembly
    program: Program
    _blanks: dict[str, Blanks] = field(default_factory=dict)

    def controls(self, table: Sequence[Seats], first: int) -> Blanks:
        """The control rows for the tasks of the levels from ``first`` on."""
        rows = self.control_rows(table, first)
        return self._blank(f"_ab_controls_{rows}", rows, tasks=1)

    def control_rows(self, table: Sequence[Seats], first: int) -> int:
        """How many control rows the levels from ``first`` on get, with room for more workers."""
        levels = self.program.physical.levels[first:]
        tasks = sum(len(table[lv.number].workers(g.name)) for lv in levels for g in lv.groups)
        return max(LEAST_CONTROLS, 1 << (tasks - 1).bit_length())

    def orders(self, level: int, count: int) -> Blanks:
        """The rows with the orders of read tasks, one each."""
        return self._blank(f"_ab_orders_{level}_{count}", count, tasks=count)

    def _blank(self, view: str, count: int, *, tasks: int) -> Blanks:
        if view not in self._blanks:
            self._blanks[view] = Blanks(self.assembly.spark, count, tasks=tasks, view=view)
            self.assembly.view(self._blanks[view].frame, view)
        return self._blanks[view]


@dataclass(frozen=True, slots=True)
class LevelQuery:
    """A view of rows for a level, their producers, and the query that brings them there.

    The query is None if only a transform reads the rows.
    """

    view: str
    producers: tuple[int, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class FrameTools:
    """What builds the frames of all steps of a program."""

    program: Program
    store: Path
    code: str
    homes: Homes | None
    assembly: Assembly
    inputs: Inputs
    routes: Routes
    blanks: StepBlanks
    cuts: CutViews


@dataclass
class StepFrame:
    """The DataFrame of one step under construction.

    ``partitions`` is the number of partitions of sources whose times Spark tells apart.
    ``executions`` are those of queries that the frame only sees the rows of.
    """

    tools: FrameTools
    plan: Plan
    seating: tuple[Seats, ...]
    inputs: Sequence[LevelInput]
    files: LoadedFiles
    partitions: dict[str, int]
    executions: list[Java] = field(default_factory=list)

    def build(self) -> DataFrame | None:
        """The DataFrame; None if the step has no tasks."""
        physical, assembly = self.tools.program.physical, self.tools.assembly
        before: list[LevelQuery] = []
        for level in physical.levels[1:]:
            crossing = self._crossing(level.number)
            given = self.inputs[level.number - 1]
            feeds = before + [self._read_files(node, crossing) for node, _ in given.files]
            if given.orders:
                feeds.append(self._read_in_python(crossing, len(given.orders)))
            parts = [feed.text for feed in feeds if feed.text is not None]
            parts += self._transforms(crossing, feeds)
            if level.number == physical.first_exchange:
                controls = self.tools.blanks.controls(self.seating, level.number)
                parts.append(crossing.controls(controls.view, AT, PAYLOAD))
            if not parts:
                continue
            job = assembly.query(" union all ".join(parts))
            if level.exchange:
                route = self.tools.routes.column(crossing.boundary)
                job = assembly.repartition(job, self.seating[level.number].partitions, route)
            after = level.number + 1
            if after == len(physical.levels):
                task = partial(region_task, self._spec(level.number))
                names = crossing.boundary.arriving_schema().names
                return assembly.map_in_arrow(job, names, task, REPORT_SCHEMA)
            before = [self._tasks(job, crossing.boundary, self._crossing(after))]
        return None

    def _crossing(self, level: int) -> Crossing:
        boundary = self.tools.program.boundary(level)
        return Crossing(boundary, self.seating[level], self.partitions)

    def _transforms(self, crossing: Crossing, feeds: Sequence[LevelQuery]) -> list[str]:
        """The queries that bring the rows of transforms to a level, one each."""
        tables = {producer: feed.view for feed in feeds for producer in feed.producers}
        cuts = self.tools.cuts
        views = run_transforms(self.tools.assembly.spark, crossing, tables, cuts.open)
        return [
            cuts.open(crossing.from_transform(transform, view))
            for transform, view in views.items()
            if transform in crossing.boundary.producers()
        ]

    def _read_files(self, node: SourceNode, crossing: Crossing) -> LevelQuery:
        level = crossing.boundary.level.number
        view = f"_ab_source_{node.id}_{level}"
        self.tools.assembly.view(self.tools.inputs.rows(node, level, self.files), view)
        text = None
        if node.id in crossing.boundary.producers():
            text = self.tools.cuts.open(crossing.from_source(node.id, view))
        return LevelQuery(view, (node.id,), text)

    def _read_in_python(self, crossing: Crossing, tasks: int) -> LevelQuery:
        boundary, assembly = crossing.boundary, self.tools.assembly
        producers = python_producers(boundary)
        orders = self.tools.blanks.orders(boundary.level.number, tasks).view
        rows = assembly.map_in_arrow(
            assembly.query(f"select {PAYLOAD} as {READ_ORDER} from {orders}"),
            [READ_ORDER],
            partial(read_task, self._spec(boundary.level.number - 1)),
            boundary.emitted_schema(producers),
        )
        return self._task_output(rows, f"_ab_reads_{boundary.level.number}", crossing, producers)

    def _tasks(self, df: DataFrame, arriving: Boundary, following: Crossing) -> LevelQuery:
        """Run a level's tasks; the view of their rows."""
        level = arriving.level
        boundary = following.boundary
        partitions = following.seats.partitions if boundary.level.exchange else None
        producers = boundary.task_producers()
        made = self.tools.assembly.map_in_arrow(
            df,
            arriving.arriving_schema().names,
            partial(region_task, self._spec(level.number, partitions)),
            boundary.emitted_schema(producers),
        )
        return self._task_output(made, f"_ab_level_{level.number}", following, producers)

    def _task_output(
        self, rows: DataFrame, view: str, crossing: Crossing, producers: Sequence[int]
    ) -> LevelQuery:
        """The rows that Python tasks emit, for a level and for the transforms before it."""
        if not crossing.boundary.transform_producers().isdisjoint(producers):
            rows, execution = shared_table(rows, crossing.seats.partitions)
            self.executions.append(execution)
        self.tools.assembly.view(rows, view)
        text = self.tools.cuts.open(crossing.from_tasks(producers, view))
        return LevelQuery(view, tuple(producers), text)

    def _spec(self, level: int, partitions: int | None = None) -> TaskSpec:
        tools = self.tools
        first = tools.program.physical.first_exchange
        spec = TaskSpec(str(tools.store), tools.code, level, search_paths(), tools.homes)
        if level == 0 or (first is not None and level >= first):
            return spec
        return replace(
            spec,
            step=self.plan.step,
            revision=self.plan.revision,
            tags=tools.inputs.tags(self.plan),
            next_partitions=partitions,
        )


def search_paths() -> tuple[str, ...]:
    """The driver's module search path."""
    return tuple(path for path in sys.path if path)
