"""Physical plans that are kept: a step runs by the plan of an earlier one, over other files.

Of two steps with the same workers, Spark's plans differ in the files that are read and in nothing
else: what tasks are told stands in blanks, and where bins are in tables that are written later. So
the plan is made once, and every step gets a copy of it that knows nothing of what the others ran.
See ``docs/decisions/0009``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from py4j.java_collections import ListConverter
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.session import use_session

SCAN = "FileSourceScanExec"
EXCHANGE = "ShuffleExchangeExec"
KNOWN = frozenset(
    {
        SCAN,
        EXCHANGE,
        "ColumnarToRowExec",
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

Files = Mapping[tuple[int, int], Java]
"""The file indexes that a plan reads, by source and level."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """A part of the plan that all steps have in common: there is no exchange in it and no file."""

    node: Java


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An exchange of rows that come from no file."""

    node: Java


@dataclass(frozen=True, slots=True)
class _Scan:
    """Where files are read; ``arguments`` makes another one, and begins with the relation."""

    node: Java
    relation: tuple[Java, tuple[Java, ...]]
    arguments: Java
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Inner:
    """A node above files or an exchange."""

    node: Java
    children: tuple[_Part, ...]


_Part = _Shared | _Exchange | _Scan | _Inner


class Planned:
    """The plan of a step, never run itself. For one thread at a time."""

    def __init__(self, spark: SparkSession, root: _Part, schema: Java) -> None:
        """Use ``of``."""
        self._spark = spark
        self._root = root
        self._schema = schema
        gateway: Java = spark.sparkContext._gateway
        self._to_seq = gateway.jvm.PythonUtils.toSeq

    @classmethod
    def of(cls, frame: DataFrame, files: Files) -> Planned | None:
        """The plan of a DataFrame over these files; None where it cannot be used again."""
        spark = frame.sparkSession
        # Outside of an action Spark plans with the settings of the active session.
        use_session(spark)
        root: Java = frame._jdf.queryExecution().executedPlan()
        part = _Taking(spark, files).taken(root)
        return None if part is None else cls(spark, part, root.schema())

    def over(self, files: Files) -> DataFrame:
        """The same query over other files."""
        # A node takes its settings from the session that is active when it is made.
        use_session(self._spark)
        rows = _Copying(self._spark, self._to_seq, files).copied(self._root).execute()
        session: Java = self._spark._jsparkSession
        return DataFrame(session.internalCreateDataFrame(rows, self._schema, False), self._spark)


class Plans:
    """The plans of queries that come again and again, by all that they depend on."""

    def __init__(self) -> None:
        """None is kept yet."""
        self._kept: OrderedDict[Hashable, Planned | _Standing] = OrderedDict()

    def frame(
        self, shape: Hashable, files: Files | None, make: Callable[[], DataFrame | None]
    ) -> DataFrame | None:
        """The query of this shape over these files, which ``make`` makes in Spark's own way.

        A plan is kept when its shape comes for the second time: taking it apart costs as much as
        planning does. ``files`` is None where nothing is known of them.
        """
        if files is None:
            return make()
        kept = self._kept.get(shape, _Standing.NEW)
        if isinstance(kept, Planned):
            self._kept.move_to_end(shape)
            return kept.over(files)
        made = make()
        if kept is _Standing.REFUSED or made is None:
            return made
        if kept is _Standing.NEW:
            self._keep(shape, _Standing.SEEN)
            return made
        planned = Planned.of(made, files)
        self._keep(shape, planned or _Standing.REFUSED)
        # The plan that is kept is never run: what it ran would be kept with it.
        return made if planned is None else planned.over(files)

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

    def __init__(self, spark: SparkSession, files: Files) -> None:
        context = spark.sparkContext
        self._jvm: Java = context._jvm
        self._gateway: Java = context._gateway
        self._session: Java = spark._jsparkSession
        self._places = {self._identity(index): place for place, index in files.items()}

    def taken(self, node: Java) -> _Part | None:
        kind = node.getClass().getSimpleName()
        if kind not in KNOWN or not node.subqueries().isEmpty():
            return None
        if kind == SCAN:
            return self._scan(node)
        below = node.children()
        parts = []
        for place in range(below.size()):
            part = self.taken(below.apply(place))
            if part is None:
                return None
            parts.append(part)
        if any(not isinstance(part, _Shared) for part in parts):
            return _Inner(node, tuple(parts))
        return _Exchange(node) if kind == EXCHANGE else _Shared(node)

    def _scan(self, node: Java) -> _Part | None:
        relation = node.relation()
        place = self._places.get(self._identity(relation.location()))
        if place is None:
            return None
        count = node.productArity()
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, count)
        for number in range(1, count):
            arguments[number] = node.productElement(number)
        rest = (
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            relation.fileFormat(),
            relation.options(),
            self._session,
        )
        return _Scan(node, (relation, rest), arguments, place)

    def _identity(self, index: Java) -> int:
        return int(self._jvm.java.lang.System.identityHashCode(index))


class _Copying:
    """Puts a plan together again, over other files."""

    def __init__(self, spark: SparkSession, to_seq: Java, files: Files) -> None:
        self._files = files
        gateway: Java = spark.sparkContext._gateway
        self._client: Java = gateway._gateway_client
        self._to_seq = to_seq

    def copied(self, part: _Part) -> Java:
        match part:
            case _Shared(node):
                return node
            case _Exchange(node):
                return node.clone()
            case _Scan(node, (relation, rest), arguments, place):
                arguments[0] = relation.copy(self._files[place], *rest)
                return node.makeCopy(arguments)
            # Not ``withNewChildren``, which gives the node itself where the children are equal.
            case _Inner(node, (child,)):
                return node.withNewChildInternal(self.copied(child))
            case _Inner(node, children):
                return node.withNewChildrenInternal(self._seq(map(self.copied, children)))

    def _seq(self, nodes: Iterable[Java]) -> Java:
        listed = ListConverter().convert(list(nodes), self._client)
        return self._to_seq(listed).toIndexedSeq()
