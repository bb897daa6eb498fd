"""Build DataFrames with few calls to the JVM.

Every step is a new DataFrame, and every call from Python to the JVM takes half a millisecond:
``DataFrame.mapInArrow`` alone makes sixty of them. ``Assembly`` creates what all steps share
(columns, types, the environment of Python tasks) once, so that a step makes a tenth of the calls.
Only this module knows how pyspark itself does it; the result is the same. See
``docs/decisions/0006``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import pyarrow as pa
from py4j.java_collections import MapConverter
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.schema import to_ddl
from anabranch.spark.jvm import PYTHON_UTILS, STRUCT, Java, java_class, java_list, scala_seq

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PYTHON_FUNCTION = "org.apache.spark.api.python.SimplePythonFunction"
_USER_FUNCTION = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"
_FUNCTIONS = "org.apache.spark.sql.functions"
_pickle: Any = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]  # pyspark left it so


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """An empty DataFrame; unlike pyspark's way, this does not change the active session."""
    session: Java = spark._jsparkSession
    columns = java_class(spark._jvm, STRUCT).fromDDL(to_ddl(schema))
    return DataFrame(session.createDataFrame(java_list(spark, []), columns), spark)


def frame_over(spark: SparkSession, rows: Java, schema: Java) -> DataFrame:
    """An RDD of Catalyst's rows as a DataFrame."""
    session: Java = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(rows, schema, False), spark)


class Assembly:
    """Builds the DataFrames of one session. For one thread."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._context = spark.sparkContext
        self._jvm: Java = self._context._jvm
        self._session: Java = spark._jsparkSession
        self._types: dict[str, tuple[StructType, Java]] = {}
        self._rows: dict[tuple[str, ...], Java] = {}
        self._selected: dict[tuple[str, ...], Java] = {}
        self._views: dict[str, Java] = {}

    def query(self, text: str) -> DataFrame:
        """A SQL query."""
        return self._frame(self._session.sql(text))

    def load(self, reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
        """The rows of files."""
        java: Java = reader
        return self._frame(java._jreader.load(scala_seq(self.spark, paths)))

    def add_columns(self, df: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The rows with additional columns, given as SQL."""
        if not columns:
            return df
        texts = ("*", *columns)
        if texts not in self._selected:
            self._selected[texts] = scala_seq(self.spark, texts)
        return self._frame(df._jdf.selectExpr(self._selected[texts]))

    def with_column(self, df: DataFrame, name: str, column: Java) -> DataFrame:
        """The rows with a column of the JVM."""
        return self._frame(df._jdf.withColumn(name, column))

    def observe(self, df: DataFrame, name: str, aggregates: Sequence[tuple[str, str]]) -> DataFrame:
        """The rows, over which aggregates, given as SQL and a name, are computed as they pass."""
        functions = java_class(self._jvm, _FUNCTIONS)
        first, *rest = (functions.expr(text).alias(alias) for text, alias in aggregates)
        return self._frame(df._jdf.observe(name, first, scala_seq(self.spark, rest)))

    def repartition(self, df: DataFrame, partitions: int, column: Java) -> DataFrame:
        """The rows in the partitions that a column of the JVM names."""
        return self._frame(df._jdf.repartitionById(partitions, column))

    def map_in_arrow(
        self, df: DataFrame, names: Sequence[str], task: Task, schema: pa.Schema | StructType
    ) -> DataFrame:
        """``df.mapInArrow``; ``names`` are all columns of ``df``."""
        python_type, java_type = self._type(schema)
        command: bytes = _pickle((task, python_type))
        if len(command) > self._broadcast_bytes:
            return df.mapInArrow(task, python_type)
        function = java_class(self._jvm, _PYTHON_FUNCTION)(
            bytearray(command),
            *self._environment,
            self._context.pythonExec,
            self._context.pythonVer,
            self._nothing,
            self._context._javaAccumulator,
        )
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        nothing = self._nothing
        user_function = java_class(self._jvm, _USER_FUNCTION)
        made = user_function("anabranch", function, java_type, kind, True, nothing, nothing)
        column = made.apply(self._columns(tuple(names)))
        return self._frame(df._jdf.mapInArrow(column, False, None))

    def view(self, df: DataFrame, name: str) -> None:
        """Name ``df`` for queries; under one name it must always have the same columns."""
        if name not in self._views:
            df.createOrReplaceTempView(quote(name))
            self._views[name] = self._catalog.getRawTempView(name).get()
            return
        first = self._views[name]
        plan = java_class(self._jvm, "scala.Option").apply(df._jdf.logicalPlan())
        self._catalog.createTempView(name, first.copy(first.tableMeta(), plan), True)

    def _frame(self, java: Java) -> DataFrame:
        return DataFrame(java, self.spark)

    def _type(self, schema: pa.Schema | StructType) -> tuple[StructType, Java]:
        text = to_ddl(schema) if isinstance(schema, pa.Schema) else schema.json()
        if text not in self._types:
            if isinstance(schema, pa.Schema):
                schema = cast(StructType, StructType.fromDDL(text))
            self._types[text] = schema, self._session.parseDataType(schema.json())
        return self._types[text]

    def _columns(self, names: tuple[str, ...]) -> Java:
        if names not in self._rows:
            functions = java_class(self._jvm, _FUNCTIONS)
            self._rows[names] = scala_seq(self.spark, map(functions.col, names))
        return self._rows[names]

    @cached_property
    def _catalog(self) -> Java:
        return self._session.sessionState().catalog()

    @cached_property
    def _nothing(self) -> Java:
        return java_list(self.spark, [])

    @cached_property
    def _environment(self) -> tuple[Java, Java]:
        gateway: Java = self._context._gateway
        environment = MapConverter().convert(self._context.environment, gateway._gateway_client)
        return environment, java_list(self.spark, self._context._python_includes or [])

    @cached_property
    def _broadcast_bytes(self) -> int:
        """The size from which pyspark broadcasts a function."""
        return int(java_class(self._jvm, PYTHON_UTILS).getBroadcastThreshold(self._context._jsc))
