"""A cache of physical plans: a step reuses the plan of an earlier one, over other files.

The plans of two steps differ only in their ``PlanInputs``: messages to tasks are in blanks, and the
placement of bins is in tables that are written later. So Spark plans once, and every step gets a
copy of the plan that holds nothing of earlier runs. See ``docs/decisions/0009``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.jvm import Java, class_name, java_class, scala_items, scala_seq
from anabranch.spark.session import use_session
from anabranch.spark.step.assembly import frame_over

COLLECTOR = "CollectMetricsExec"
EXCHANGE = "ShuffleExchangeExec"
ROUTED = "ShufflePartitionIdPassThrough"
KNOWN = frozenset(
    {
        COLLECTOR,
        EXCHANGE,
        "ColumnarToRowExec",
        "FileSourceScanExec",
        "FilterExec",
        "GenerateExec",
        "InputAdapter",
        "LocalTableScanExec",
        "MapInArrowExec",
        "ProjectExec",
        "RDDScanExec",
        "UnionExec",
        "WholeStageCodegenExec",
    }
)
"""The node classes whose copies are known to be as good as new."""

KEPT_PLANS = 16

Place = tuple[int, ...]
"""Where a dataflow reads something."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What differs between the plans of two steps.

    ``files`` are file indexes; ``rows`` are RDDs, with one task per partition; ``partitions`` is
    their number behind each exchange, that of the last level first.
    """

    files: Mapping[Place, Java] = field(default_factory=dict)
    rows: Mapping[Place, Java] = field(default_factory=dict)
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shared:
    """A part of the plan without inputs, which all steps share."""

    node: Java


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An exchange; ``arguments`` construct a copy and begin with partitioning and child.

    ``depth`` is the number of exchanges above it; ``routes`` caches the partitionings by their
    number of partitions.
    """

    node: Java
    child: _Part
    depth: int
    arguments: Java
    routes: dict[int, Java]


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan of files; ``arguments`` construct a copy and begin with the relation."""

    node: Java
    relation: tuple[Java, tuple[Java, ...]]
    arguments: Java
    place: Place


@dataclass(frozen=True, slots=True)
class _Rows:
    """A scan of an RDD, which is the second of ``arguments``."""

    node: Java
    arguments: Java
    place: Place


@dataclass(frozen=True, slots=True)
class _Collector:
    """Collects what an ``observe`` computes, in every step for itself."""

    node: Java
    child: _Part


@dataclass(frozen=True, slots=True)
class _Inner:
    """Any other node above an input."""

    node: Java
    children: tuple[_Part, ...]


_Part = _Shared | _Exchange | _Scan | _Rows | _Collector | _Inner


@dataclass(frozen=True, slots=True)
class PlannedFrame:
    """A query over a copy of a cached plan, with the copy's collectors; None if it has no copy."""

    frame: DataFrame
    collectors: tuple[Java, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReusablePlan:
    """The plan of a step, which is copied and never run itself. For one thread at a time."""

    spark: SparkSession
    root: _Part
    schema: Java

    @classmethod
    def of(cls, frame: DataFrame, given: PlanInputs) -> ReusablePlan | None:
        """The plan of a DataFrame over these inputs; None if it cannot be reused.

        A plan with one partition behind an exchange serves only one partition.
        """
        spark = frame.sparkSession
        # Outside an action Spark plans with the settings of the active session.
        use_session(spark)
        root: Java = frame._jdf.queryExecution().executedPlan()
        part = _PlanReader(spark, given).read(root)
        return None if part is None else cls(spark, part, root.schema())

    def over(self, given: PlanInputs) -> DataFrame:
        """The same query over other inputs."""
        return self.planned_over(given).frame

    def planned_over(self, given: PlanInputs) -> PlannedFrame:
        """The same query over other inputs, with its collectors."""
        # A new node takes its settings from the active session.
        use_session(self.spark)
        copy = _Copy(self.spark, given)
        rows = copy.of(self.root).execute()
        return PlannedFrame(frame_over(self.spark, rows, self.schema), tuple(copy.collectors))


class PlanCache:
    """The plans of recurring queries, by their shape: everything that a plan depends on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, ReusablePlan | _ShapeState] = OrderedDict()

    def frame(
        self, shape: Hashable, given: PlanInputs | None, make: Callable[[], DataFrame | None]
    ) -> PlannedFrame | None:
        """The query of this shape over these inputs, from a cached plan or from ``make``.

        A plan is cached when its shape comes for the second time: reading it costs as much as
        planning. ``given`` is None if the inputs are not all known.
        """
        if given is None:
            return _unplanned(make())
        # Spark plans an exchange to a single partition differently.
        shape = (shape, tuple(number == 1 for number in given.partitions))
        kept = self._kept.get(shape, _ShapeState.NEW)
        if isinstance(kept, ReusablePlan):
            self._kept.move_to_end(shape)
            return kept.planned_over(given)
        made = make()
        if kept is _ShapeState.REFUSED or made is None:
            return _unplanned(made)
        if kept is _ShapeState.NEW:
            self._keep(shape, _ShapeState.SEEN)
            return _unplanned(made)
        planned = ReusablePlan.of(made, given)
        self._keep(shape, planned or _ShapeState.REFUSED)
        # The cached plan never runs itself: it would hold on to the results of that run.
        return _unplanned(made) if planned is None else planned.planned_over(given)

    def _keep(self, shape: Hashable, what: ReusablePlan | _ShapeState) -> None:
        self._kept[shape] = what
        self._kept.move_to_end(shape)
        while len(self._kept) > KEPT_PLANS:
            self._kept.popitem(last=False)


def _unplanned(frame: DataFrame | None) -> PlannedFrame | None:
    return None if frame is None else PlannedFrame(frame)


class _ShapeState(Enum):
    """The state of a shape without a plan: never seen, seen once, or not cacheable."""

    NEW = auto()
    SEEN = auto()
    REFUSED = auto()


class _PlanReader:
    """Reads a physical plan into parts."""

    def __init__(self, spark: SparkSession, given: PlanInputs) -> None:
        self._partitions = given.partitions
        self._gateway: Java = spark.sparkContext._gateway
        self._session: Java = spark._jsparkSession
        self._identity_of = java_class(spark._jvm, "java.lang.System").identityHashCode
        self._files = {self._identity(index): place for place, index in given.files.items()}
        self._rows = {self._identity(rows): place for place, rows in given.rows.items()}

    def read(self, node: Java, depth: int = 0) -> _Part | None:
        """The part for a node, ``depth`` exchanges below the root; None for unknown nodes."""
        kind = class_name(node)
        if kind not in KNOWN or not node.subqueries().isEmpty():
            return None
        if kind == "FileSourceScanExec":
            return self._file_scan(node)
        if kind == "RDDScanExec":
            place = self._rows.get(self._identity(node.rdd()))
            return _Shared(node) if place is None else _Rows(node, self._arguments(node, 0), place)
        return self._inner(kind, node, depth)

    def _inner(self, kind: str, node: Java, depth: int) -> _Part | None:
        parts = []
        for child in scala_items(node.children()):
            part = self.read(child, depth + (kind == EXCHANGE))
            if part is None:
                return None
            parts.append(part)
        if kind == EXCHANGE:
            return self._exchange(node, parts[0], depth)
        if kind == COLLECTOR:
            return _Collector(node, parts[0])
        if all(isinstance(part, _Shared) for part in parts):
            return _Shared(node)
        return _Inner(node, tuple(parts))

    def _exchange(self, node: Java, child: _Part, depth: int) -> _Part | None:
        routed = node.outputPartitioning()
        number = int(routed.numPartitions())
        known = number == 1 or class_name(routed) == ROUTED
        if self._partitions[depth : depth + 1] != (number,) or not known:
            return None
        return _Exchange(node, child, depth, self._arguments(node, 2), {number: routed})

    def _file_scan(self, node: Java) -> _Part | None:
        relation = node.relation()
        place = self._files.get(self._identity(relation.location()))
        if place is None:
            return None
        rest = (
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            relation.fileFormat(),
            relation.options(),
            self._session,
        )
        return _Scan(node, (relation, rest), self._arguments(node, 1), place)

    def _arguments(self, node: Java, first: int) -> Java:
        """The arguments that construct a copy of a node, from the ``first`` on."""
        count = node.productArity()
        kind = java_class(self._gateway.jvm, "java.lang.Object")
        arguments = self._gateway.new_array(kind, count)
        for number in range(first, count):
            arguments[number] = node.productElement(number)
        return arguments

    def _identity(self, index: Java) -> int:
        return int(self._identity_of(index))


class _Copy:
    """A copy of a plan over other inputs, and the collectors in it."""

    def __init__(self, spark: SparkSession, given: PlanInputs) -> None:
        self._spark = spark
        self._given = given
        self.collectors: list[Java] = []

    def of(self, part: _Part) -> Java:
        """Copy a part."""
        given = self._given
        copied: Java
        match part:
            case _Shared(node):
                copied = node
            case _Exchange(node, child, depth, arguments, routes):
                arguments[0] = _partitioning(routes, given.partitions[depth])
                arguments[1] = self.of(child)
                copied = node.makeCopy(arguments)
            case _Scan(node, (relation, rest), arguments, place):
                arguments[0] = relation.copy(given.files[place], *rest)
                copied = node.makeCopy(arguments)
            case _Rows(node, arguments, place):
                arguments[1] = given.rows[place]
                copied = node.makeCopy(arguments)
            # Not ``withNewChildren``, which returns the node itself if the children are equal.
            case _Collector(node, child) | _Inner(node, (child,)):
                copied = node.withNewChildInternal(self.of(child))
            case _Inner(node, children):
                copies = scala_seq(self._spark, [self.of(child) for child in children])
                copied = node.withNewChildrenInternal(copies.toIndexedSeq())
        if isinstance(part, _Collector):
            self.collectors.append(copied)
        return copied


def _partitioning(routes: dict[int, Java], partitions: int) -> Java:
    """The partitioning of an exchange for this number of partitions."""
    if partitions not in routes:
        any_number = next(iter(routes.values()))
        routes[partitions] = any_number.copy(any_number.expr(), partitions)
    return routes[partitions]
