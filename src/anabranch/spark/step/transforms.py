"""User Spark code between two levels: checked at build, called on the driver in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import SourceNode, TransformNode
from anabranch.dataflow.naming import ORD, TIME
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import InvalidSchema, UserFunctionFailed
from anabranch.operators.error_text import failing_line
from anabranch.plan.physical import Edge, Transform
from anabranch.plan.sql import Crossing
from anabranch.plan.time_sql import CutQuery
from anabranch.plan.transform_sql import ORD_TYPE, inflow, outflow
from anabranch.protocol.sources import read_by_spark
from anabranch.spark.failure import sentence
from anabranch.spark.jvm import (
    SESSION,
    TREE_PATTERN,
    Java,
    class_name,
    java_class,
    plans_below,
    scala_items,
)
from anabranch.spark.step.actions import ActionRefused, refusing_actions
from anabranch.spark.step.assembly import frame_over

ORD_FIELD = pa.field(ORD, ORD_TYPE)
TIME_FIELD = pa.field(TIME, pa.timestamp("us", "UTC"))
_OWN_TYPES = {ORD: "struct<at:array<bigint>>", TIME: "timestamp"}
_AT = "_ab_at"
_UNORDERED = {
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Offset": "offset",
    "Tail": "tail",
    "Sample": "sample",
}
_PICKS = {"First": "first", "Last": "last", "AnyValue": "any_value"}


def analyze_transform(
    given: DataFrame, function: Callable[[Any], Any], *, timed: bool
) -> Transformed | str:
    """What a function returns for a DataFrame, or why it cannot be used. Starts no job.

    ``timed``: the DataFrame has the column ``_time``; else such a column is the user's own.
    """
    try:
        with _keep_active_session(given.sparkSession), refusing_actions():
            made = function(given)
    except Exception as error:
        return f"it {_raised(error)}"
    own = (ORD, TIME) if timed else (ORD,)
    return _wrong_result(given, made) or _nondeterminism(made) or _columns(made, own)


def shared_table(df: DataFrame, partitions: int) -> tuple[DataFrame, Java]:
    """The rows of tasks as a table that any number of queries in one job may read.

    The tasks run once: their rows are behind an exchange, and to Catalyst the table is opaque, so
    that it cannot push a query below the exchange and thereby duplicate it. Also gives the
    execution of what is behind the table.
    """
    at = F.expr(f"cast(pmod(spark_partition_id(), {partitions}) as int)").alias(_AT)
    spread = df.select("*", at).repartitionById(partitions, _AT)
    execution = spread._jdf.queryExecution()
    return frame_over(df.sparkSession, execution.toRdd(), spread._jdf.schema()), execution


def run_transforms(
    spark: SparkSession,
    crossing: Crossing,
    tables: dict[int, str],
    open_cuts: Callable[[CutQuery], str],
) -> dict[int, str]:
    """Call the functions of one boundary; the view of each transform that has rows, by its id.

    ``tables`` names the views of the other producers that have rows in this step. ``open_cuts``
    makes a query ready and gives its text.
    """
    physical = crossing.boundary.physical
    known = dict(tables)
    for transform in crossing.boundary.transforms:
        fed = [edge for edge in transform.inputs if edge.producer in known]
        if not fed:
            continue
        given = [_inflow(crossing, transform, edge, known[edge.producer]) for edge in fed]
        node = cast("TransformNode", physical.node(transform.id))
        raw, view = f"_ab_given_{transform.id}", f"_ab_transform_{transform.id}"
        made = _call(node, spark.sql(" union all ".join(map(open_cuts, given))))
        made.createOrReplaceTempView(raw)
        spark.sql(outflow(physical, transform, raw)).createOrReplaceTempView(view)
        known[transform.id] = view
    return {id: view for id, view in known.items() if id not in tables}


def _inflow(crossing: Crossing, transform: Transform, edge: Edge, table: str) -> CutQuery:
    node = crossing.boundary.physical.node(edge.producer)
    by_jvm = isinstance(node, SourceNode) and read_by_spark(node.source)
    return inflow(crossing, transform, edge, table, by_jvm=by_jvm)


def _call(node: TransformNode, given: DataFrame) -> DataFrame:
    """Call the function with the rows of a step."""
    try:
        with _keep_active_session(given.sparkSession), refusing_actions():
            made = node.function(given)
    except Exception as error:
        raise _function_error(node, _raised(error), error) from error
    wrong = _wrong_result(given, made)
    if wrong is not None:
        raise _function_error(node, f"cannot be used: {wrong}")
    return cast("DataFrame", made)


def _raised(error: Exception) -> str:
    if isinstance(error, ActionRefused):
        return f"called an action: {error}"
    from_spark = isinstance(error, PySparkException | Py4JJavaError)
    text = sentence(error) if from_spark else " ".join(str(error).split())
    return f"raised {type(error).__name__}: {text}"


@contextmanager
def _keep_active_session(session: SparkSession) -> Iterator[None]:
    """Restore the active session after user code has run."""
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


def _function_error(
    node: TransformNode, what: str, error: Exception | None = None
) -> UserFunctionFailed:
    function: Any = node.function.function
    line = "" if error is None else f", {failing_line(error, function)}"
    return UserFunctionFailed(
        f"{describe_function(function)} {what}",
        where=f"operator {node.name}{line}",
        do="Fix the function and run the pipeline again: it continues with this step.",
    )


def _wrong_result(given: DataFrame, made: object) -> str | None:
    if not isinstance(made, DataFrame):
        return f"it returned {type(made).__name__} instead of a DataFrame"
    if not made._jdf.sparkSession().equals(given._jdf.sparkSession()):
        return "it returned a DataFrame of another session: start from its argument"
    if made.isStreaming:
        return "it returned a streaming DataFrame"
    return None


def _nondeterminism(made: DataFrame) -> str | None:
    """Why the rows of a plan depend on more than its input; None if they do not."""
    plan = made._jdf.queryExecution().analyzed()
    again = "a step that runs again must give the same rows"
    if plan.containsPattern(java_class(made.sparkSession._jvm, TREE_PATTERN).CURRENT_LIKE()):
        return f"it uses the current time, user or database: {again}"
    for part in _plans(plan):
        if not part.deterministic():
            return f"it is not deterministic: {again}"
        kind = class_name(part)
        if kind in _UNORDERED:
            return f"{_UNORDERED[kind]} takes whatever rows come first: {again}"
        if kind == "Deduplicate" and part.keys().size() < part.child().output().size():
            return f"dropDuplicates of some columns keeps whatever row comes first: {again}"
        if kind == "Aggregate":
            for picked in _picks(part.expressions()):
                return f"{picked} takes whatever row comes first: {again}"
    return None


def _columns(made: DataFrame, own: Iterable[str]) -> Transformed | str:
    """What it returned: the user's columns, and which of our ``own`` are among them."""
    names = [name.lower() for name in made.columns]
    kept = {name: names.count(name) for name in own if name in names}
    for field in made.schema.fields:
        name = field.name.lower()
        if name in kept and (kept[name], field.dataType.simpleString()) != (1, _OWN_TYPES[name]):
            return f"it changed the column {name}"
    schema = carried_schema(made, [place for place, name in enumerate(names) if name not in kept])
    if isinstance(schema, str):
        return schema
    return (
        Transformed(schema, ORD in kept, TIME in kept) if len(schema) else "it returned no columns"
    )


def carried_schema(df: DataFrame, places: Iterable[int]) -> pa.Schema | str:
    """The columns at these places as Arrow types, or which of them rows cannot carry."""
    fields: list[pa.Field] = []
    for place in places:
        # Spark's DDL describes types completely.
        try:
            fields.append(parse_schema(df._jdf.schema().apply(place).toDDL()).field(0))
        except InvalidSchema:
            field = df.schema.fields[place]
            kind = field.dataType.simpleString()
            return f'column "{field.name}" is {kind}, which rows cannot carry: cast it'
    return pa.schema(fields)


def _plans(plan: Java) -> Iterator[Java]:
    yield plan
    for part in plans_below(plan):
        yield from _plans(part)


def _picks(expressions: Java) -> Iterator[str]:
    for expression in scala_items(expressions):
        kind = class_name(expression)
        if kind in _PICKS:
            yield _PICKS[kind]
        yield from _picks(expression.children())
