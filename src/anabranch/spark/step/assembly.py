"""DataFrames put together with few calls to the JVM.

A step is a new DataFrame every time, and every call from Python to the JVM takes half a
millisecond: ``DataFrame.mapInArrow`` alone makes sixty of them. What is the same in all steps
(columns, types, the environment of Python tasks) is made here once, so that a step makes a tenth of
the calls. This is the one place that knows how pyspark itself does it; the result is the same. See
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

_FUNCTION = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"
_NAME = "anabranch"
_pickle: Any = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]  # pyspark left it so


def no_rows(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """An empty DataFrame; unlike pyspark's, it leaves the active session as it is."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    columns = java_class(jvm, STRUCT).fromDDL(to_ddl(schema))
    empty = java_class(jvm, "java.util.ArrayList")()
    return DataFrame(session.createDataFrame(empty, columns), spark)


class Assembly:
    """Puts together the DataFrames of one session. For one thread."""

    def __init__(self, spark: SparkSession) -> None:
        """No call is made yet."""
        self.spark = spark
        self._context = spark.sparkContext
        self._types: dict[str, tuple[StructType, Any]] = {}
        self._columns: dict[str, Any] = {}
        self._rows: dict[tuple[str, ...], Any] = {}
        self._selected: dict[tuple[str, ...], Any] = {}
        self._views: dict[str, Any] = {}

    def query(self, text: str) -> DataFrame:
        """A SQL query."""
        return self._made(self._session.sql(text))

    def loaded(self, reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
        """The rows of files."""
        made: Any = reader
        return self._made(made._jreader.load(self._to_seq(self._listed(paths))))

    def selected(self, df: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The rows with further columns beside their own."""
        return self._made(df._jdf.selectExpr(self._texts(("*", *columns)))) if columns else df

    def parted(self, df: DataFrame, partitions: int, column: Any) -> DataFrame:  # noqa: ANN401
        """The rows in the partitions that a column of the JVM's names."""
        return self._made(df._jdf.repartitionById(partitions, column))

    def mapped(
        self, df: DataFrame, names: Sequence[str], task: Task, schema: pa.Schema | StructType
    ) -> DataFrame:
        """``df.mapInArrow``; ``names`` are all columns of ``df``."""
        python_type, java_type = self._type(schema)
        command: bytes = _pickle((task, python_type))
        if len(command) > self._broadcast_bytes:
            return df.mapInArrow(task, python_type)
        function = self._python_function(
            bytearray(command),
            *self._environment,
            self._context.pythonExec,
            self._context.pythonVer,
            self._nothing,
            self._context._javaAccumulator,
        )
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        made = self._function(_NAME, function, java_type, kind, True, self._nothing, self._nothing)
        column = made.apply(self._arguments(tuple(names)))
        return self._made(df._jdf.mapInArrow(column, False, None))

    def view(self, df: DataFrame, name: str) -> None:
        """Let queries call ``df`` by a name; under one name it always has the same columns."""
        if name not in self._views:
            df.createOrReplaceTempView(quote(name))
            self._views[name] = self._catalog.getRawTempView(name).get()
            return
        first = self._views[name]
        plan = self._option.apply(df._jdf.logicalPlan())
        self._catalog.createTempView(name, first.copy(first.tableMeta(), plan), True)

    def _made(self, java: Any) -> DataFrame:  # noqa: ANN401  (objects of the JVM have no type here)
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
            self._columns[name] = self._functions.col(name)
        return self._columns[name]

    def _arguments(self, names: tuple[str, ...]) -> Any:  # noqa: ANN401
        if names not in self._rows:
            columns = self._listed([self._column(name) for name in names])
            self._rows[names] = self._to_seq(columns)
        return self._rows[names]

    def _texts(self, texts: tuple[str, ...]) -> Any:  # noqa: ANN401
        if texts not in self._selected:
            self._selected[texts] = self._to_seq(self._listed(texts))
        return self._selected[texts]

    def _listed(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        return ListConverter().convert(list(values), self._client)

    @cached_property
    def _jvm(self) -> Any:  # noqa: ANN401
        return self._context._jvm

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401
        gateway: Any = self._context._gateway
        return gateway._gateway_client

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401
        return self.spark._jsparkSession

    @cached_property
    def _catalog(self) -> Any:  # noqa: ANN401
        return self._session.sessionState().catalog()

    @cached_property
    def _functions(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, "org.apache.spark.sql.functions")

    @cached_property
    def _function(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, _FUNCTION)

    @cached_property
    def _python_function(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, "org.apache.spark.api.python.SimplePythonFunction")

    @cached_property
    def _option(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, "scala.Option")

    @cached_property
    def _to_seq(self) -> Any:  # noqa: ANN401
        return java_class(self._jvm, PYTHON_UTILS).toSeq

    @cached_property
    def _nothing(self) -> Any:  # noqa: ANN401
        return self._listed([])

    @cached_property
    def _environment(self) -> tuple[Any, Any]:
        environment = MapConverter().convert(self._context.environment, self._client)
        return environment, self._listed(self._context._python_includes or [])

    @cached_property
    def _broadcast_bytes(self) -> int:
        """From here on pyspark sends a function by other means."""
        return int(java_class(self._jvm, PYTHON_UTILS).getBroadcastThreshold(self._context._jsc))
