"""The user's Spark code between two levels: asked at build, called in every step, on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import SourceNode, TransformNode
from anabranch.dataflow.naming import ORD
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import InvalidSchema, UserFunctionFailed
from anabranch.operators.error_text import failing_line
from anabranch.plan.physical import Edge, Transform
from anabranch.plan.sql import Crossing
from anabranch.plan.transform_sql import ORD_TYPE, inflow, outflow
from anabranch.sources.structured_stream import read_by_spark
from anabranch.spark.error_text import sentence
from anabranch.spark.jvm import SESSION, TREE_PATTERN, java_class

ORD_FIELD = pa.field(ORD, ORD_TYPE)
_ORD_TEXT = "struct<at:array<bigint>>"
_AT = "_ab_at"
_BY_CHANCE = {
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Offset": "offset",
    "Tail": "tail",
    "Sample": "sample",
}
_PICKS = {"First": "first", "Last": "last", "AnyValue": "any_value"}


def analyse(given: DataFrame, function: Callable[[Any], Any]) -> Transformed | str:
    """What a function gives for a DataFrame, or why it cannot be used. Starts no job of its own."""
    try:
        with _active_session_kept(given.sparkSession):
            made = function(given)
    except (PySparkException, Py4JJavaError) as error:
        return f"it raised {type(error).__name__}: {sentence(error)}"
    except Exception as error:
        return f"it raised {type(error).__name__}: {' '.join(str(error).split())}"
    wrong = _not_usable(given, made) or _by_chance(made)
    return wrong if wrong is not None else _columns(made)


def shared(df: DataFrame, partitions: int) -> DataFrame:
    """The rows of tasks as a table that any number of queries in one job may read.

    The tasks run once: their rows are behind an exchange, and Catalyst sees a table of which it
    knows nothing, so no query can be pushed below the exchange and make it another one.
    """
    at = F.expr(f"cast(pmod(spark_partition_id(), {partitions}) as int)").alias(_AT)
    spread = df.select("*", at).repartitionById(partitions, _AT)
    rows = spread._jdf.queryExecution().toRdd()
    session = df.sparkSession
    java: Any = session._jsparkSession
    return DataFrame(java.internalCreateDataFrame(rows, spread._jdf.schema(), False), session)


class Transforms:
    """Runs the transforms of one boundary, as queries over the tables that feed it."""

    def __init__(self, spark: SparkSession, crossing: Crossing) -> None:
        """Nothing is called yet."""
        self._spark = spark
        self._crossing = crossing

    def run(self, tables: dict[int, str]) -> dict[int, str]:
        """Call the functions; the view of each transform that has rows, by its id.

        ``tables`` names the views of the other producers. One without rows in this step is not
        among them.
        """
        physical = self._crossing.boundary.physical
        known = dict(tables)
        for transform in self._crossing.boundary.transforms:
            texts = [
                self._inflow(transform, edge, known[edge.producer])
                for edge in transform.inputs
                if edge.producer in known
            ]
            if not texts:
                continue
            node = physical.node(transform.id)
            assert isinstance(node, TransformNode)
            raw, view = f"_ab_given_{transform.id}", f"_ab_transform_{transform.id}"
            made = _called(node, self._spark.sql(" union all ".join(texts)))
            made.createOrReplaceTempView(raw)
            self._spark.sql(outflow(physical, transform, raw)).createOrReplaceTempView(view)
            known[transform.id] = view
        return {id: view for id, view in known.items() if id not in tables}

    def _inflow(self, transform: Transform, edge: Edge, table: str) -> str:
        node = self._crossing.boundary.physical.node(edge.producer)
        by_jvm = isinstance(node, SourceNode) and read_by_spark(node.source)
        return inflow(self._crossing, transform, edge, table, by_jvm=by_jvm)


def _called(node: TransformNode, given: DataFrame) -> DataFrame:
    """What the function gives for the rows of a step."""
    try:
        with _active_session_kept(given.sparkSession):
            made = node.function(given)
    except Exception as error:
        spoken = isinstance(error, PySparkException | Py4JJavaError)
        text = sentence(error) if spoken else str(error)
        raise _failed(node, f"raised {type(error).__name__}: {text}", error) from error
    wrong = _not_usable(given, made)
    if wrong is not None:
        raise _failed(node, f"cannot be used: {wrong}")
    found: DataFrame = made
    return found


@contextmanager
def _active_session_kept(session: SparkSession) -> Iterator[None]:
    """Whatever the user's code does, the active session is the same afterwards."""
    java = java_class(session._jvm, SESSION)
    python_before, java_before = SparkSession._activeSession, java.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = python_before
        if java_before.isDefined():
            java.setActiveSession(java_before.get())
        else:
            java.clearActiveSession()


def _failed(node: TransformNode, what: str, error: Exception | None = None) -> UserFunctionFailed:
    function: Any = node.function.function
    where = f"operator {node.name}"
    if error is not None:
        where = f"{where}, {failing_line(error, function)}"
    return UserFunctionFailed(
        f"{describe_function(function)} {what}",
        where=where,
        do="Mend the function and run the pipeline again: it continues with this step.",
    )


def _not_usable(given: DataFrame, made: object) -> str | None:
    if not isinstance(made, DataFrame):
        return f"it returned {type(made).__name__} instead of a DataFrame"
    if not made._jdf.sparkSession().equals(given._jdf.sparkSession()):
        return "it returned a DataFrame of another session: begin with the one that it is given"
    if made.isStreaming:
        return "it returned a streaming DataFrame"
    return None


def _by_chance(made: DataFrame) -> str | None:
    """Why the rows of a plan depend on more than its input."""
    plan = made._jdf.queryExecution().analyzed()
    again = "a step that runs again must give the same rows"
    jvm: Any = made.sparkSession._jvm
    if plan.containsPattern(java_class(jvm, TREE_PATTERN).CURRENT_LIKE()):
        return f"it uses the current time, user or database: {again}"
    for part in _plans(plan):
        if not part.deterministic():
            return f"it is not deterministic: {again}"
        kind = _kind(part)
        if kind in _BY_CHANCE:
            return f"{_BY_CHANCE[kind]} takes whatever rows come first: {again}"
        if kind == "Deduplicate" and part.keys().size() < part.child().output().size():
            return f"dropDuplicates of some columns keeps whatever row comes first: {again}"
        if kind == "Aggregate":
            for picked in _picks(part.expressions()):
                return f"{picked} takes whatever row comes first: {again}"
    return None


def _columns(made: DataFrame) -> Transformed | str:
    fields: list[pa.Field] = []
    ordered = False
    for number, field in enumerate(made.schema.fields):
        kind = field.dataType.simpleString()
        if field.name.lower() == ORD:
            if kind != _ORD_TEXT or ordered:
                return f"it returned another {ORD} than it was given"
            ordered = True
            continue
        try:
            fields.append(parse_schema(made._jdf.schema().apply(number).toDDL()).field(0))
        except InvalidSchema:
            return f'column "{field.name}" is {kind}, which rows cannot carry: cast it'
    if not fields:
        return "it returned no columns"
    return Transformed(pa.schema(fields), ordered)


def _plans(plan: Any) -> Iterator[Any]:  # noqa: ANN401  (objects of the JVM have no type here)
    yield plan
    for parts in (plan.children(), plan.subqueries()):
        for place in range(parts.size()):
            yield from _plans(parts.apply(place))


def _picks(expressions: Any) -> Iterator[str]:  # noqa: ANN401
    for place in range(expressions.size()):
        expression = expressions.apply(place)
        kind = _kind(expression)
        if kind in _PICKS:
            yield _PICKS[kind]
        yield from _picks(expression.children())


def _kind(node: Any) -> str:  # noqa: ANN401
    return str(node.getClass().getSimpleName()).rstrip("$")
