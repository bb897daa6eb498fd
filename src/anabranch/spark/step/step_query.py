"""The query of a step: a DataFrame, over a cached plan if there is one, and what is filled in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from anabranch.messages import encode
from anabranch.plan.boundary import Seats, seats_of_level
from anabranch.plan.physical import Level, SeenBy
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.slices import Slice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.spark.session import lift_byte_limit
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.inputs import Inputs, LevelInput, LoadedFiles, indexes_of
from anabranch.spark.step.late_rows import Blanks
from anabranch.spark.step.plan_cache import Place, PlanCache, PlanInputs, PlannedFrame
from anabranch.spark.step.reading import ReadOrder, encode_order
from anabranch.spark.step.routes import Routes
from anabranch.spark.step.step_frame import FrameTools, StepBlanks, StepFrame, search_paths
from anabranch.spark.step.task import control_part
from anabranch.spark.step.watched import CutViews, Watchers
from anabranch.task.controls import controls_of
from anabranch.task.program import Program
from anabranch.task.worker_home import Homes


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
    """A step as a query that returns its reports, and the blanks to fill before it runs.

    ``watchers`` tell afterwards how far event times have come.
    """

    plan_key: PlanKey
    frame: DataFrame
    blanks: Blanks | None
    orders: PlacedOrders
    watchers: Watchers


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

    def __post_init__(self) -> None:
        assembly = Assembly(self.spark)
        self._inputs = Inputs(assembly, self.program, self.sources)
        self._plans = PlanCache()
        self._routes = Routes(self.spark, self.program)
        self._blanks = StepBlanks(assembly, self.program)
        self._cuts = CutViews(assembly)
        self._tools = FrameTools(
            *(self.program, self.store, self.code, self.homes, assembly),
            *(self._inputs, self._routes, self._blanks, self._cuts),
        )
        boundaries = [self.program.boundary(n + 1) for n in range(len(self._levels))]
        if all(boundary.is_narrow() for boundary in boundaries):
            lift_byte_limit(self.spark)
        assigned = [each for boundary in boundaries for each in boundary.assignments()]
        self._watched = any(each.seen_by is not SeenBy.READER for each in assigned)
        self._told_apart = {e.source for e in assigned if e.seen_by is SeenBy.PARTITION}

    @property
    def _levels(self) -> tuple[Level, ...]:
        """The levels with tasks."""
        return self.program.physical.levels[1:]

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
        partitions = dict(self._partitions(plan))
        step = StepFrame(self._tools, plan, plan_key.seating, inputs, files, partitions)
        planned = self._planned(step, plan_key)
        if planned is None:
            return None
        first = self.program.physical.first_exchange
        blanks = None if first is None else self._blanks.controls(plan_key.seating, first)
        watchers = self._watchers(step, planned)
        return StepQuery(plan_key, planned.frame, blanks, self._orders(inputs), watchers)

    def _planned(self, step: StepFrame, plan_key: PlanKey) -> PlannedFrame | None:
        physical = self.program.physical
        # Cached, if every task gets its step in a message, and no user code builds queries.
        if physical.first_exchange == 1 and not physical.transforms:
            shape = (self._seat_shape(plan_key.seating), plan_key.shape)
            given = self._plan_inputs(plan_key.seating, step.inputs, step.files)
            return self._plans.frame(shape, given, step.build)
        frame = step.build()
        return None if frame is None else PlannedFrame(frame)

    def _watchers(self, step: StepFrame, planned: PlannedFrame) -> Watchers:
        """Those who watch event times in this query."""
        if not self._watched:
            return Watchers()
        if planned.collectors is not None:
            return Watchers(collectors=planned.collectors)
        return Watchers([planned.frame._jdf.queryExecution(), *step.executions])

    def _partitions(self, plan: Plan) -> tuple[tuple[str, int], ...]:
        """How many partitions Spark tells apart of sources; rounded up, for plans to last."""
        counts = [(source, plan.partitions(source)) for source in sorted(self._told_apart)]
        return tuple((source, 1 << (count - 1).bit_length()) for source, count in counts)

    def reuse(self, query: StepQuery, plan: Plan) -> StepQuery | None:
        """A query that was prepared for an expected step, if it fits the actual one.

        Not if ``calls_user_code``: this asks the sources again what to read.
        """
        inputs = self._inputs.of(plan)
        if self._plan_key(plan, inputs) != query.plan_key:
            return None
        return replace(query, orders=self._orders(inputs))

    def fill(self, query: StepQuery, plan: Plan, states: Sequence[OperatorState]) -> None:
        """Write the routes of rows, the clock and the messages to tasks."""
        self._cuts.write_clock(plan.clock_ns)
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
            (search_paths(), self._partitions(plan), *(each.shape for each in inputs)),
            tuple(len(each.orders) for each in inputs),
        )

    def _seat_shape(self, seating: Sequence[Seats]) -> tuple[Hashable, ...]:
        """How the seats shape the query: the routes of rows without keys, the control rows."""
        loose = (
            seating[level.number].groups
            for level in self.program.physical.levels
            if level.exchange and any(group.region is None for group in level.groups)
        )
        return (self._blanks.control_rows(seating, 1), *loose)

    def _plan_inputs(
        self, seating: Sequence[Seats], inputs: Sequence[LevelInput], files: LoadedFiles
    ) -> PlanInputs | None:
        """The inputs of a plan that may be reused; None if they are not all known."""
        indexes = indexes_of(files)
        if indexes is None:
            return None
        orders: dict[Place, Any] = {
            (each.level,): self._blanks.orders(each.level, len(each.orders)).rows
            for each in inputs
            if each.orders
        }
        levels = reversed(self._levels)
        partitions = tuple(seating[level.number].partitions for level in levels if level.exchange)
        return PlanInputs(indexes, orders, partitions)

    def _orders(self, inputs: Sequence[LevelInput]) -> PlacedOrders:
        """The orders of read tasks, and the blanks to write them to."""
        return tuple(
            (self._blanks.orders(each.level, len(each.orders)), each.orders)
            for each in inputs
            if each.orders
        )

    def _seating(self, plan: Plan) -> tuple[Seats, ...]:
        """The seats of every level; a level without an exchange keeps those of the one before."""
        found = [Seats(())]
        for level in self._levels:
            seated = seats_of_level(level, plan)
            found.append(seated if level.exchange or level.number == 1 else found[-1])
        return tuple(found)
