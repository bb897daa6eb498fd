"""Physical plans that are kept: a step runs by the plan of an earlier one, over other files.

The plans of two steps differ only in their ``PlanInputs``: what tasks are told stands
in blanks, and where bins are in tables that are written later. So the plan is made once, and every
step gets a copy of it that knows nothing of what the others ran. See
``docs/decisions/0009``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from py4j.java_collections import ListConverter
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.jvm import PYTHON_UTILS, java_class
from anabranch.spark.session import use_session

EXCHANGE = "ShuffleExchangeExec"
ROUTED = "ShufflePartitionIdPassThrough"
KNOWN = frozenset(
    {
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
"""The kinds of nodes of which a copy is known to be as good as new."""

KEPT_PLANS = 16

Java = Any
"""An object of the JVM; it has no type here."""

Place = tuple[int, ...]
"""Where in a dataflow something is read."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What the plans of two steps differ in.

    ``files`` are indexes of files and ``rows`` are RDDs, one task for each partition of theirs;
    ``partitions`` is how many there are behind each exchange, that of the last level first.
    """

    files: Mapping[Place, Java] = field(default_factory=dict)
    rows: Mapping[Place, Java] = field(default_factory=dict)
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shared:
    """A part of the plan that all steps have in common: nothing in it is given."""

    node: Java


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An exchange; ``arguments`` makes another one, and begins with partitioning and child.

    ``depth`` is the number of exchanges above it; ``routes`` has the partitionings so far, by their
    number of partitions.
    """

    node: Java
    child: _Part
    depth: int
    arguments: Java
    routes: dict[int, Java]


@dataclass(frozen=True, slots=True)
class _Scan:
    """Where files are read; ``arguments`` makes another one, and begins with the relation."""

    node: Java
    relation: tuple[Java, tuple[Java, ...]]
    arguments: Java
    place: Place


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where rows that are given are read; ``arguments`` has them second."""

    node: Java
    arguments: Java
    place: Place


@dataclass(frozen=True, slots=True)
class _Inner:
    """Another node above something that is given."""

    node: Java
    children: tuple[_Part, ...]


_Part = _Shared | _Exchange | _Scan | _Rows | _Inner


class Planned:
    """The plan of a step, never run itself. For one thread at a time."""

    def __init__(self, spark: SparkSession, root: _Part, schema: Java) -> None:
        """Use ``of``."""
        self._spark = spark
        self._root = root
        self._schema = schema
        gateway: Java = spark.sparkContext._gateway
        self._to_seq = java_class(gateway.jvm, PYTHON_UTILS).toSeq

    @classmethod
    def of(cls, frame: DataFrame, given: PlanInputs) -> Planned | None:
        """The plan of a DataFrame over what is given; None where it cannot be used again.

        With one partition behind an exchange, it can be used for one partition only.
        """
        spark = frame.sparkSession
        # Outside of an action Spark plans with the settings of the active session.
        use_session(spark)
        root: Java = frame._jdf.queryExecution().executedPlan()
        part = _Taking(spark, given).taken(root)
        return None if part is None else cls(spark, part, root.schema())

    def over(self, given: PlanInputs) -> DataFrame:
        """The same query over something else."""
        # A node takes its settings from the session that is active when it is made.
        use_session(self._spark)
        rows = _Copying(self._spark, self._to_seq, given).copied(self._root).execute()
        session: Java = self._spark._jsparkSession
        return DataFrame(session.internalCreateDataFrame(rows, self._schema, False), self._spark)


class Plans:
    """The plans of queries that come again and again, by all that they depend on."""

    def __init__(self) -> None:
        """None is kept yet."""
        self._kept: OrderedDict[Hashable, Planned | _Standing] = OrderedDict()

    def frame(
        self, shape: Hashable, given: PlanInputs | None, make: Callable[[], DataFrame | None]
    ) -> DataFrame | None:
        """The query of this shape over what is given, which ``make`` makes in Spark's own way.

        A plan is kept when its shape comes for the second time: taking it apart costs as much as
        planning does. ``given`` is None where not all of it is known.
        """
        if given is None:
            return make()
        # Spark plans an exchange with one partition behind it in a way of its own.
        shape = (shape, tuple(number == 1 for number in given.partitions))
        kept = self._kept.get(shape, _Standing.NEW)
        if isinstance(kept, Planned):
            self._kept.move_to_end(shape)
            return kept.over(given)
        made = make()
        if kept is _Standing.REFUSED or made is None:
            return made
        if kept is _Standing.NEW:
            self._keep(shape, _Standing.SEEN)
            return made
        planned = Planned.of(made, given)
        self._keep(shape, planned or _Standing.REFUSED)
        # The plan that is kept is never run: what it ran would be kept with it.
        return made if planned is None else planned.over(given)

    def _keep(self, shape: Hashable, what: Planned | _Standing) -> None:
        self._kept[shape] = what
        self._kept.move_to_end(shape)
        while len(self._kept) > KEPT_PLANS:
            self._kept.popitem(last=False)


class _Standing(Enum):
    """Of a shape without a plan: never seen, seen once, or not to be planned once for all."""

    NEW = auto()
    SEEN = auto()
    REFUSED = auto()


class _Taking:
    """Takes a plan apart."""

    def __init__(self, spark: SparkSession, given: PlanInputs) -> None:
        context = spark.sparkContext
        self._partitions = given.partitions
        self._jvm: Java = context._jvm
        self._gateway: Java = context._gateway
        self._session: Java = spark._jsparkSession
        self._identity_of = java_class(self._jvm, "java.lang.System").identityHashCode
        self._files = {self._identity(index): place for place, index in given.files.items()}
        self._rows = {self._identity(rows): place for place, rows in given.rows.items()}

    def taken(self, node: Java, depth: int = 0) -> _Part | None:
        """What a node is, ``depth`` exchanges below the root; None where one is not known."""
        kind = node.getClass().getSimpleName()
        if kind not in KNOWN or not node.subqueries().isEmpty():
            return None
        match kind:
            case "FileSourceScanExec":
                return self._scan(node)
            case "RDDScanExec":
                return self._scanned(node)
            case _:
                return self._above(kind, node, depth)

    def _above(self, kind: str, node: Java, depth: int) -> _Part | None:
        """What a node above others is."""
        below = node.children()
        parts = []
        for place in range(below.size()):
            part = self.taken(below.apply(place), depth + (kind == EXCHANGE))
            if part is None:
                return None
            parts.append(part)
        if kind == EXCHANGE:
            return self._exchange(node, parts[0], depth)
        if any(not isinstance(part, _Shared) for part in parts):
            return _Inner(node, tuple(parts))
        return _Shared(node)

    def _scanned(self, node: Java) -> _Part:
        place = self._rows.get(self._identity(node.rdd()))
        return _Shared(node) if place is None else _Rows(node, self._arguments(node, 0), place)

    def _exchange(self, node: Java, child: _Part, depth: int) -> _Part | None:
        routed = node.outputPartitioning()
        number = int(routed.numPartitions())
        kind = routed.getClass().getSimpleName()
        if self._partitions[depth : depth + 1] != (number,) or (number > 1 and kind != ROUTED):
            return None
        return _Exchange(node, child, depth, self._arguments(node, 2), {number: routed})

    def _scan(self, node: Java) -> _Part | None:
        relation = node.relation()
        place = self._files.get(self._identity(relation.location()))
        if place is None:
            return None
        arguments = self._arguments(node, 1)
        rest = (
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            relation.fileFormat(),
            relation.options(),
            self._session,
        )
        return _Scan(node, (relation, rest), arguments, place)

    def _arguments(self, node: Java, first: int) -> Java:
        """What another node is made with, from the ``first`` argument on."""
        count = node.productArity()
        arguments = self._gateway.new_array(java_class(self._jvm, "java.lang.Object"), count)
        for number in range(first, count):
            arguments[number] = node.productElement(number)
        return arguments

    def _identity(self, index: Java) -> int:
        return int(self._identity_of(index))


class _Copying:
    """Puts a plan together again, over something else."""

    def __init__(self, spark: SparkSession, to_seq: Java, given: PlanInputs) -> None:
        self._given = given
        gateway: Java = spark.sparkContext._gateway
        self._client: Java = gateway._gateway_client
        self._to_seq = to_seq

    def copied(self, part: _Part) -> Java:
        match part:
            case _Shared(node):
                return node
            case _Exchange(node, child, depth, arguments, routes):
                arguments[0] = _routed(routes, self._given.partitions[depth])
                arguments[1] = self.copied(child)
                return node.makeCopy(arguments)
            case _Scan(node, (relation, rest), arguments, place):
                arguments[0] = relation.copy(self._given.files[place], *rest)
                return node.makeCopy(arguments)
            case _Rows(node, arguments, place):
                arguments[1] = self._given.rows[place]
                return node.makeCopy(arguments)
            # Not ``withNewChildren``, which gives the node itself where the children are equal.
            case _Inner(node, (child,)):
                return node.withNewChildInternal(self.copied(child))
            case _Inner(node, children):
                return node.withNewChildrenInternal(self._seq(map(self.copied, children)))

    def _seq(self, nodes: Iterable[Java]) -> Java:
        listed = ListConverter().convert(list(nodes), self._client)
        return self._to_seq(listed).toIndexedSeq()


def _routed(routes: dict[int, Java], partitions: int) -> Java:
    """The partitioning of an exchange for so many partitions."""
    if partitions not in routes:
        any_number = next(iter(routes.values()))
        routes[partitions] = any_number.copy(any_number.expr(), partitions)
    return routes[partitions]
