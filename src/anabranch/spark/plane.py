"""A step as one Spark job with one action: read, exchange, region tasks, reports.

The job is put together anew for every step; only the texts of its queries, which change with the
assignment alone, are kept.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.graph import SourceNode
from anabranch.errors import AnabranchError
from anabranch.messages import Control, Load, Message, Report, encode
from anabranch.node.program import Program
from anabranch.node.worker_home import Homes, tidy_homes
from anabranch.operators.states import state_shapes
from anabranch.plan.boundary import PART, Boundary, Seats, seats
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import Group
from anabranch.plan.sql import Crossing
from anabranch.plan.step import Assignment, Input, OperatorState, Plan
from anabranch.rescale.shares import members
from anabranch.sources.files import FileSource
from anabranch.sources.port import FileSlice, RangeSlice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.sources.structured_stream import read_by_spark
from anabranch.spark.assembly import Assembly
from anabranch.spark.executors import Executors, releasing
from anabranch.spark.failure import MALFORMED, malformed, quietly, translated
from anabranch.spark.reading import (
    READ_ORDER,
    FileReader,
    PartitionPart,
    ReadOrder,
    ReadPart,
    malformed_row,
    orders_frame,
    python_producers,
    read_orders,
    read_task,
    tags_of,
)
from anabranch.spark.session import STEP_POOL, use_pool
from anabranch.spark.sources import SparkSources
from anabranch.spark.task import REPORT_SCHEMA, TaskSpec, control_part, region_task
from anabranch.spark.transforms import Transforms, shared
from anabranch.state.bins import BinSet

_KEPT_TEXTS = 64
_decode_report = msgspec.msgpack.Decoder(Report).decode


@dataclass(frozen=True, slots=True)
class Feed:
    """A view over rows for a level, whose rows they are, and the query that brings them there.

    The query is None where only a transform gets the rows.
    """

    view: str
    producers: tuple[int, ...]
    text: str | None


@dataclass
class SparkPlane:
    """Runs steps on Spark. One step at a time."""

    spark: SparkSession
    program: Program
    store: Path
    code: str
    sources: SparkSources
    homes: Homes | None = None
    _texts: dict[tuple[object, ...], str] = field(default_factory=dict)
    _readers: dict[tuple[int, int], FileReader] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    _thread: int | None = None
    _executors: Executors = field(init=False)
    _assembly: Assembly = field(init=False)
    _tidied: bool = False
    _group: str = field(default_factory=lambda: f"anabranch-steps-{secrets.token_hex(8)}")

    def __post_init__(self) -> None:
        """Nothing is asked of the cluster yet."""
        self._executors = Executors(self.spark)
        self._assembly = Assembly(self.spark)

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step; gives the reports of all its tasks. Raises an ``AnabranchError``."""
        started = time.perf_counter()
        self._tidy(plan)
        if plan.moves is not None and plan.moves.announced:
            self._fit(members(plan.moves.announced))
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            use_pool(self.spark, STEP_POOL)
            self.spark.sparkContext.setJobGroup(self._group, "steps", interruptOnCancel=True)
        try:
            job = self._job(plan, states)
            if job is None:
                return []
            built = time.perf_counter()
            with quietly():
                rows = job.collect()
        except PySparkException as error:
            raise self._explained(plan, error) from error
        except Exception as error:
            if "Py4J" not in type(error).__name__:
                raise
            raise self._explained(plan, error) from error
        finished = time.perf_counter()
        self.timings = {"build": built - started, "job": finished - built}
        if plan.moves is not None and plan.moves.shutdown:
            self._fit(members(plan.placement))
        return [_decode_report(bytes(row[0])) for row in rows]

    @property
    def releasing(self) -> str:
        """What becomes of executors when workers go."""
        return releasing(self.spark)

    def _fit(self, workers: Sequence[int]) -> None:
        """Have the executors that so many workers need; a cluster may refuse, and steps go on."""
        with contextlib.suppress(PySparkException, Py4JError):
            self._executors.fit(len(workers))

    def _tidy(self, plan: Plan) -> None:
        """Remove homes that were left behind, once, and not while bins are on their way."""
        if self.homes is not None and plan.moves is None and not self._tidied:
            self._tidied = True
            tidy_homes(self.homes, members(plan.placement))

    def cancel(self) -> None:
        """Let Spark give up the step that runs. Its tasks may go on for a while."""
        if self.spark.sparkContext._jsc is not None:
            self.spark.sparkContext.cancelJobGroup(self._group)

    def _explained(self, plan: Plan, error: Exception) -> AnabranchError:
        """The error of ours; for a malformed row with the row itself, which is looked for now."""
        if MALFORMED in str(error):
            inputs = {given.source: given for given in plan.inputs}
            for node in self.program.physical.sources():
                source = node.source
                if not isinstance(source, FileSource) or source.separates:
                    continue
                given = inputs.get(node.name)
                slices = [s for s in given.slices if isinstance(s, FileSlice)] if given else []
                with contextlib.suppress(Exception), quietly():
                    found = malformed_row(self.spark, source, slices)
                    if found is not None:
                        return malformed(node.name, *found)
        return translated(error)

    def _job(self, plan: Plan, states: Sequence[OperatorState]) -> DataFrame | None:
        physical = self.program.physical
        table = self._seating(plan)
        before: list[Feed] = []
        job: DataFrame | None = None
        for level in physical.levels[1:]:
            crossing = self._crossing(plan, level.number, table)
            feeds = before + self._read(plan, crossing)
            parts = [feed.text for feed in feeds if feed.text is not None]
            parts += self._transforms(crossing, feeds)
            if level.number == physical.first_exchange:
                parts.append(self._control_rows(plan, states, table, crossing))
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
        for level in self.program.physical.levels[1:]:
            seated = seats(level, plan)
            found.append(seated if level.exchange or level.number == 1 else found[-1])
        return found

    def _control_rows(
        self,
        plan: Plan,
        states: Sequence[OperatorState],
        table: list[Seats],
        crossing: Crossing,
    ) -> str:
        level = crossing.boundary.level.number
        controls = self._controls(plan, states, table, level)
        notes = [(control_part(self.program, level, c), encode(c)) for c in controls]
        return crossing.controls(notes)

    def _crossing(self, plan: Plan, level: int, table: list[Seats]) -> Crossing:
        boundary = self.program.boundary(level)
        return Crossing(boundary, table[level], plan.placement, self.program.bins)

    def _transforms(self, crossing: Crossing, feeds: Sequence[Feed]) -> list[str]:
        """What brings the rows of transforms to a level, one query each."""
        if not crossing.boundary.transforms:
            return []
        tables = {producer: feed.view for feed in feeds for producer in feed.producers}
        views = Transforms(self.spark, crossing).run(tables)
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
        for number, node in enumerate(self.program.physical.sources()):
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
            found = self.sources.partitions(node.name, given.slices)
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
            str(self.store),
            self.code,
            level,
            plan.step,
            plan.revision,
            partitions,
            tuple(path for path in sys.path if path),
            self._tags(plan),
            plan.clock_ns,
            self.homes,
        )

    def _controls(
        self, plan: Plan, states: Sequence[OperatorState], table: list[Seats], first: int
    ) -> list[Control]:
        by_operator = {state.operator: state for state in states}
        found = []
        for level in self.program.physical.levels[first:]:
            for group in level.groups:
                for worker, seat in table[level.number].of(group.name).items():
                    messages = self._messages(plan, group, worker, by_operator)
                    found.append(
                        Control(
                            level.number,
                            seat,
                            group.name,
                            worker,
                            _owned(plan.placement, group.region, worker),
                            messages,
                        )
                    )
        return found

    def _messages(
        self, plan: Plan, group: Group, worker: int, states: dict[str, OperatorState]
    ) -> tuple[Message, ...]:
        loads = []
        for node in group.operators:
            operator = self.program.operators.get(node)
            if operator is not None:
                kept = [states[shape.name] for shape in state_shapes(operator)]
                loads += [Load(state.operator, state.runs, state.live) for state in kept]
        return messages_for(plan, group.region, worker, loads)

    def _tags(self, plan: Plan) -> tuple[tuple[int, tuple[int, ...]], ...]:
        inputs = {given.source: given for given in plan.inputs}
        found = []
        for number, node in enumerate(self.program.physical.sources()):
            given = inputs.get(node.name)
            if given is not None and read_by_spark(node.source):
                slices = [part for part in given.slices if isinstance(part, FileSlice)]
                found.append(tags_of(number, slices))
        return tuple(found)


def _owned(placement: Sequence[Assignment], region: str | None, worker: int) -> BinSet:
    for assignment in placement:
        if assignment.region == region:
            return BinSet.of(b for b, owner in enumerate(assignment.workers) if owner == worker)
    return BinSet()
