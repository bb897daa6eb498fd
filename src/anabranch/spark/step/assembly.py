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
from py4j.java_collections import ListConverter, MapConverter
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.schema import to_ddl
from anabranch.spark.jvm import PYTHON_UTILS, STRUCT, java_class

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PYTHON_FUNCTION = "org.apache.spark.api.python.SimplePythonFunction"
_USER_FUNCTION = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"
_FUNCTIONS = "org.apache.spark.sql.functions"
_NAME = "anabranch"
_pickle: Any = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]  # pyspark left it so


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """An empty DataFrame; unlike pyspark's way, this does not change the active session."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    columns = java_class(jvm, STRUCT).fromDDL(to_ddl(schema))
    empty = java_class(jvm, "java.util.ArrayList")()
    return DataFrame(session.createDataFrame(empty, columns), spark)


class Assembly:
    """Builds the DataFrames of one session. For one thread."""

    def __init__(self, spark: SparkSession) -> None:
        """Make no call yet."""
        self.spark = spark
        self._context = spark.sparkContext
        self._jvm: Any = self._context._jvm
        self._session: Any = spark._jsparkSession
        gateway: Any = self._context._gateway
        self._client: Any = gateway._gateway_client
        self._types: dict[str, tuple[StructType, Any]] = {}
        self._columns: dict[str, Any] = {}
        self._rows: dict[tuple[str, ...], Any] = {}
        self._selected: dict[tuple[str, ...], Any] = {}
        self._views: dict[str, Any] = {}

    def query(self, text: str) -> DataFrame:
        """A SQL query."""
        return self._frame(self._session.sql(text))

    def load(self, reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
        """The rows of files."""
        java: Any = reader
        return self._frame(java._jreader.load(self._seq(paths)))

    def add_columns(self, df: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The rows with additional columns, given as SQL."""
        return self._frame(df._jdf.selectExpr(self._text_seq(("*", *columns)))) if columns else df

    def repartition(self, df: DataFrame, partitions: int, column: Any) -> DataFrame:  # noqa: ANN401
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
        made = user_function(_NAME, function, java_type, kind, True, nothing, nothing)
        column = made.apply(self._arguments(tuple(names)))
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

    def _frame(self, java: Any) -> DataFrame:  # noqa: ANN401  (of the JVM: untyped)
        return DataFrame(java, self.spark)

    def _type(self, schema: pa.Schema | StructType) -> tuple[StructType, Any]:
        text = to_ddl(schema) if isinstance(schema, pa.Schema) else schema.json()
        if text not in self._types:
            if isinstance(schema, pa.Schema):
                schema = cast(StructType, StructType.fromDDL(text))
            self._types[text] = schema, self._session.parseDataType(schema.json())
        return self._types[text]

    def _column(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._columns:
            self._columns[name] = java_class(self._jvm, _FUNCTIONS).col(name)
        return self._columns[name]

    def _arguments(self, names: tuple[str, ...]) -> Any:  # noqa: ANN401
        if names not in self._rows:
            self._rows[names] = self._seq([self._column(name) for name in names])
        return self._rows[names]

    def _text_seq(self, texts: tuple[str, ...]) -> Any:  # noqa: ANN401
        if texts not in self._selected:
            self._selected[texts] = self._seq(texts)
        return self._selected[texts]

    def _java_list(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        return ListConverter().convert(list(values), self._client)

    def _seq(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        return self._to_seq(self._java_list(values))

    @cached_property
    def _catalog(self) -> Any:  # noqa: ANN401
        return self._session.sessionState().catalog()

    @cached_property
    def _to_seq(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, PYTHON_UTILS).toSeq

    @cached_property
    def _nothing(self) -> Any:  # noqa: ANN401
        return self._java_list([])

    @cached_property
    def _environment(self) -> tuple[Any, Any]:
        environment = MapConverter().convert(self._context.environment, self._client)
        return environment, self._java_list(self._context._python_includes or [])

    @cached_property
    def _broadcast_bytes(self) -> int:
        """The size from which pyspark broadcasts a function."""
        return int(java_class(self._jvm, PYTHON_UTILS).getBroadcastThreshold(self._context._jsc))
