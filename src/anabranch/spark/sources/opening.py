"""Sources that need Spark, or its classes: how they get their schema, and how they are opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from anabranch.dataflow.graph import Graph, GraphNode, SourceNode
from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import ReadFailed
from anabranch.operators.error_text import short
from anabranch.protocol.sources import Enumerator, Source, SourceLog
from anabranch.records.slices import Slice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.sources.structured_stream import StructuredStreamSource
from anabranch.spark.jvm import java_class
from anabranch.spark.sources.data_source import DataSourceEnumerator, instance_of
from anabranch.spark.sources.structured_stream import StreamEnumerator, frame_ddl, made_frame


def with_schemas(graph: Graph, spark: SparkSession) -> Graph:
    """The graph with the schemas that only Spark or a data source can tell."""
    return replace(graph, nodes=tuple(_with_schema(node, spark) for node in graph.nodes))


@dataclass
class SparkSources:
    """Opens the sources of one pipeline, and knows the open ones by their names."""

    spark: SparkSession
    store: Path
    _opened: dict[str, DataSourceEnumerator] = field(default_factory=dict)

    def open(self, name: str, source: Source, position: bytes | None, log: SourceLog) -> Enumerator:
        """Open a source of any kind."""
        match source:
            case PythonDataSource():
                self._opened[name] = DataSourceEnumerator(name, source, position)
                return self._opened[name]
            case StructuredStreamSource():
                return StreamEnumerator(self.spark, name, source, self.store, position)
            case _:
                return source.open(position, log)

    def partitions(self, name: str, slices: Sequence[Slice]) -> list[bytes]:
        """The partitions of a Python data source that a step reads, for its tasks."""
        return self._opened[name].partitions(slices)


def _with_schema(node: GraphNode, spark: SparkSession) -> GraphNode:
    if not isinstance(node, SourceNode):
        return node
    source = node.source
    match source:
        case PythonDataSource(given=None):
            return replace(node, source=source.with_schema(_own_schema(node.name, source, spark)))
        case StructuredStreamSource(given=None):
            ddl = frame_ddl(made_frame(spark, node.name, source))
            return replace(node, source=source.with_schema(parse_schema(ddl)))
        case _:
            return node


def _own_schema(name: str, source: PythonDataSource, spark: SparkSession) -> pa.Schema:
    try:
        schema: Any = instance_of(source).schema()
        if isinstance(schema, StructType):
            types = java_class(spark._jvm, "org.apache.spark.sql.types.DataType")
            schema = types.fromJson(schema.json()).toDDL()
        return parse_schema(schema)
    except Exception as error:
        raise ReadFailed(
            f"Source {name!r} raised {type(error).__name__}: {short(str(error))}",
            where="schema of its data source",
            do="Mend the data source, or give schema= in the dataflow.",
        ) from error
