"""Build the query of a step: read, exchange, region tasks, reports, as one DataFrame.

The messages to tasks and the placement of bins are not in it: they are written before it runs. So
the queries of two steps differ only in their files and in the number of workers, and the plan of
one serves the other.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import encode
from anabranch.plan.boundary import Boundary, Seats, seats_of_level
from anabranch.plan.sql import Crossing
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.slices import Slice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.spark.session import lift_byte_limit
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.inputs import Inputs, LevelInput, LoadedFiles, indexes_of
from anabranch.spark.step.late_rows import AT, PAYLOAD, Blanks
from anabranch.spark.step.plan_cache import Place, PlanCache, PlanInputs
from anabranch.spark.step.reading import (
    READ_ORDER,
    ReadOrder,
    encode_order,
    python_producers,
    read_task,
)
from anabranch.spark.step.routes import Routes
from anabranch.spark.step.task import REPORT_SCHEMA, TaskSpec, control_part, region_task
from anabranch.spark.step.transforms import run_transforms, shared_table
from anabranch.task.controls import controls_of
from anabranch.task.program import Program
from anabranch.task.worker_home import Homes

LEAST_CONTROLS = 16


@dataclass(frozen=True, slots=True)
class PlanKey:
    """Everything that a step's query depends on; the placement of bins is not part of it.

    ``shape`` is what its plan depends on; ``read_tasks`` is their number, by level.
    """

    step: int
    revision: int
    reads: tuple[tuple[str, tuple[Slice, ...]], ...]
    seating: tuple[Seats, ...]
    shape: tuple[Hashable, ...]
    read_tasks: tuple[int, ...]


PlacedOrders: TypeAlias = tuple[tuple[Blanks, tuple[ReadOrder, ...]], ...]
"""The orders of read tasks, and the blanks to write them to."""


@dataclass(frozen=True, slots=True)
class StepQuery:
    """A step as a query that returns its reports, and the blanks to fill before it runs."""

    plan_key: PlanKey
    frame: DataFrame
    blanks: Blanks | None
    orders: PlacedOrders


@dataclass(frozen=True, slots=True)
class LevelQuery:
    """A view of rows for a level, their producers, and the query that brings them there.

    The query is None if only a transform reads the rows.
    """

    view: str
    producers: tuple[int, ...]
    text: str | None


def reads_of(plan: Plan) -> tuple[tuple[str, tuple[Slice, ...]], ...]:
    """What a step reads of each source."""
    return tuple((given.source, given.slices) for given in plan.inputs)


@dataclass
class StepQueries:
    """Builds the queries of one program's steps. For one thread at a time."""

    spark: SparkSession
    program: Program
    store: Path
    code: str
    sources: SparkSources
    homes: Homes | None
    _blanks: dict[str, Blanks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._assembly = Assembly(self.spark)
        self._inputs = Inputs(self._assembly, self.program, self.sources)
        self._plans = PlanCache()
        self._routes = Routes(self.spark, self.program)
        levels = self.program.physical.levels[1:]
        if all(self.program.boundary(level.number).is_narrow() for level in levels):
            lift_byte_limit(self.spark)

    @property
    def calls_user_code(self) -> bool:
        """Whether building a query calls the user's code: then it is not done on speculation."""
        sources = self.program.physical.sources()
        asking = any(isinstance(node.source, PythonDataSource) for node in sources)
        return asking or bool(self.program.physical.transforms)

    def query(self, plan: Plan) -> StepQuery | None:
        """The query of a step; None if it has no tasks."""
        inputs = self._inputs.of(plan)
        plan_key = self._plan_key(plan, inputs)
        files = self._inputs.load(inputs)
        make = partial(self._frame, plan, plan_key.seating, inputs, files)
        physical = self.program.physical
        # Cached, if every task gets its step in a message, and no user code builds queries.
        if physical.first_exchange == 1 and not physical.transforms:
            shape = (self._seat_shape(plan_key.seating), plan_key.shape)
            given = self._plan_inputs(plan_key.seating, inputs, files)
            frame = self._plans.frame(shape, given, make)
        else:
            frame = make()
        if frame is None:
            return None
        first = physical.first_exchange
        blanks = None if first is None else self._control_blanks(plan_key.seating, first)
        return StepQuery(plan_key, frame, blanks, self._orders(inputs))

    def reuse(self, query: StepQuery, plan: Plan) -> StepQuery | None:
        """A query that was prepared for an expected step, if it fits the actual one.

        Not if ``calls_user_code``: this asks the sources again what to read.
        """
        inputs = self._inputs.of(plan)
        if self._plan_key(plan, inputs) != query.plan_key:
            return None
        return replace(query, orders=self._orders(inputs))

    def fill(self, query: StepQuery, plan: Plan, states: Sequence[OperatorState]) -> None:
        """Write the routes of rows and the messages to tasks."""
        self._routes.write(plan.placement, query.plan_key.seating)
        for blanks, orders in query.orders:
            blanks.fill([(number, encode_order(order)) for number, order in enumerate(orders)])
        first = self.program.physical.first_exchange
        if query.blanks is not None and first is not None:
            tags = self._inputs.tags(plan)
            controls = controls_of(self.program, plan, states, query.plan_key.seating, first, tags)
            query.blanks.fill([(control_part(self.program, first, c), encode(c)) for c in controls])

    def _plan_key(self, plan: Plan, inputs: Sequence[LevelInput]) -> PlanKey:
        return PlanKey(
            plan.step,
            plan.revision,
            reads_of(plan),
            self._seating(plan),
            (_paths(), *(each.shape for each in inputs)),
            tuple(len(each.orders) for each in inputs),
        )

    def _seat_shape(self, seating: Sequence[Seats]) -> tuple[Hashable, ...]:
        """How the seats shape the query: the routes of rows without keys, the control rows."""
        loose = (
            seating[level.number].groups
            for level in self.program.physical.levels
            if level.exchange and any(group.region is None for group in level.groups)
        )
        return (self._control_rows(seating, 1), *loose)

    def _plan_inputs(
        self, seating: Sequence[Seats], inputs: Sequence[LevelInput], files: LoadedFiles
    ) -> PlanInputs | None:
        """The inputs of a plan that may be reused; None if they are not all known."""
        indexes = indexes_of(files)
        if indexes is None:
            return None
        orders: dict[Place, Any] = {
            (each.level,): self._order_blanks(each.level, len(each.orders)).rows
            for each in inputs
            if each.orders
        }
        levels = reversed(self.program.physical.levels[1:])
        partitions = tuple(seating[level.number].partitions for level in levels if level.exchange)
        return PlanInputs(indexes, orders, partitions)

    def _orders(self, inputs: Sequence[LevelInput]) -> PlacedOrders:
        """The orders of read tasks, and the blanks to write them to."""
        return tuple(
            (self._order_blanks(each.level, len(each.orders)), each.orders)
            for each in inputs
            if each.orders
        )

    def _frame(
        self, plan: Plan, table: tuple[Seats, ...], inputs: Sequence[LevelInput], files: LoadedFiles
    ) -> DataFrame | None:
        physical = self.program.physical
        before: list[LevelQuery] = []
        job: DataFrame | None = None
        for level in physical.levels[1:]:
            crossing = Crossing(self.program.boundary(level.number), table[level.number])
            given = inputs[level.number - 1]
            feeds = before + [self._read_files(n, crossing, files) for n, _ in given.files]
            if given.orders:
                feeds.append(self._read_in_python(plan, crossing, len(given.orders)))
            parts = [feed.text for feed in feeds if feed.text is not None]
            parts += self._transforms(crossing, feeds)
            if level.number == physical.first_exchange:
                controls = self._control_blanks(table, level.number)
                parts.append(crossing.controls(controls.view, AT, PAYLOAD))
            if not parts:
                continue
            job = self._assembly.query(" union all ".join(parts))
            if level.exchange:
                job = self._assembly.repartition(
                    job, table[level.number].partitions, self._routes.column(crossing.boundary)
                )
            after = level.number + 1
            if after == len(physical.levels):
                task = partial(region_task, self._spec(plan, level.number))
                names = crossing.boundary.arriving_schema().names
                return self._assembly.map_in_arrow(job, names, task, REPORT_SCHEMA)
            following = Crossing(self.program.boundary(after), table[after])
            before = [self._tasks(job, plan, crossing.boundary, following)]
        return None

    def _seating(self, plan: Plan) -> tuple[Seats, ...]:
        """The seats of every level; a level without an exchange keeps those of the one before."""
        found = [Seats(())]
        for level in self.program.physical.levels[1:]:
            seated = seats_of_level(level, plan)
            found.append(seated if level.exchange or level.number == 1 else found[-1])
        return tuple(found)

    def _control_blanks(self, table: Sequence[Seats], first: int) -> Blanks:
        """The control rows for the tasks of the levels from ``first`` on."""
        rows = self._control_rows(table, first)
        return self._blank(f"_ab_controls_{rows}", rows, tasks=1)

    def _control_rows(self, table: Sequence[Seats], first: int) -> int:
        """How many control rows the levels from ``first`` on get, with room for more workers."""
        levels = self.program.physical.levels[first:]
        tasks = sum(len(table[lv.number].workers(g.name)) for lv in levels for g in lv.groups)
        return max(LEAST_CONTROLS, 1 << (tasks - 1).bit_length())

    def _order_blanks(self, level: int, count: int) -> Blanks:
        """The rows with the orders of read tasks, one each."""
        return self._blank(f"_ab_orders_{level}_{count}", count, tasks=count)

    def _blank(self, view: str, count: int, *, tasks: int) -> Blanks:
        if view not in self._blanks:
            self._blanks[view] = Blanks(self.spark, count, tasks=tasks, view=view)
            self._assembly.view(self._blanks[view].frame, view)
        return self._blanks[view]

    def _transforms(self, crossing: Crossing, feeds: Sequence[LevelQuery]) -> list[str]:
        """The queries that bring the rows of transforms to a level, one each."""
        tables = {producer: feed.view for feed in feeds for producer in feed.producers}
        views = run_transforms(self.spark, crossing, tables)
        return [
            crossing.from_transform(transform, view)
            for transform, view in views.items()
            if transform in crossing.boundary.producers()
        ]

    def _read_files(self, node: SourceNode, crossing: Crossing, files: LoadedFiles) -> LevelQuery:
        level = crossing.boundary.level.number
        view = f"_ab_source_{node.id}_{level}"
        self._assembly.view(self._inputs.rows(node, level, files), view)
        wanted = node.id in crossing.boundary.producers()
        return LevelQuery(view, (node.id,), crossing.from_source(node.id, view) if wanted else None)

    def _read_in_python(self, plan: Plan, crossing: Crossing, tasks: int) -> LevelQuery:
        boundary = crossing.boundary
        producers = python_producers(boundary)
        spec = self._spec(plan, boundary.level.number - 1)
        orders = self._order_blanks(boundary.level.number, tasks).view
        rows = self._assembly.map_in_arrow(
            self._assembly.query(f"select {PAYLOAD} as {READ_ORDER} from {orders}"),
            [READ_ORDER],
            partial(read_task, spec),
            boundary.emitted_schema(producers),
        )
        return self._task_output(rows, f"_ab_reads_{boundary.level.number}", crossing, producers)

    def _tasks(
        self, df: DataFrame, plan: Plan, arriving: Boundary, following: Crossing
    ) -> LevelQuery:
        """Run a level's tasks; the view of their rows."""
        level = arriving.level
        boundary = following.boundary
        partitions = following.seats.partitions if boundary.level.exchange else None
        spec = self._spec(plan, level.number, partitions)
        producers = boundary.task_producers()
        made = self._assembly.map_in_arrow(
            df,
            arriving.arriving_schema().names,
            partial(region_task, spec),
            boundary.emitted_schema(producers),
        )
        return self._task_output(made, f"_ab_level_{level.number}", following, producers)

    def _task_output(
        self, rows: DataFrame, view: str, crossing: Crossing, producers: Sequence[int]
    ) -> LevelQuery:
        """The rows that Python tasks emit, for a level and for the transforms before it."""
        boundary = crossing.boundary
        if not boundary.transform_producers().isdisjoint(producers):
            rows = shared_table(rows, crossing.seats.partitions)
        self._assembly.view(rows, view)
        taken = [producer for producer in producers if producer in boundary.producers()]
        return LevelQuery(view, tuple(producers), crossing.from_tasks(taken, view))

    def _spec(self, plan: Plan, level: int, partitions: int | None = None) -> TaskSpec:
        first = self.program.physical.first_exchange
        spec = TaskSpec(str(self.store), self.code, level, _paths(), self.homes)
        if level == 0 or (first is not None and level >= first):
            return spec
        return replace(
            spec,
            step=plan.step,
            revision=plan.revision,
            tags=self._inputs.tags(plan),
            next_partitions=partitions,
        )


def _paths() -> tuple[str, ...]:
    """The driver's module search path."""
    return tuple(path for path in sys.path if path)
