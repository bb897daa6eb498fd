"""Sources that Spark has a part in: files that it reads itself, and Python data sources.

Files of JSON lines and Parquet are read by Arrow. A Python data source is opened and read by what
does so on Spark: that takes pyspark's classes and no Java, and is imported only where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.dataflow.graph import SourceNode
from anabranch.errors import Problem
from anabranch.protocol.sources import Enumerator, Source, SourceLog, read_by_spark
from anabranch.records.slices import FileSlice, OffsetSlice
from anabranch.sources.files import FileSource
from anabranch.sources.python_data_source import PLACES, PythonDataSource

FORMATS = ("json", "parquet")


def refused_source(node: SourceNode) -> Problem | None:
    """Why a source cannot be read without Spark."""
    source = node.source
    if not read_by_spark(source):
        return None
    if isinstance(source, FileSource) and source.format in FORMATS and not source.options:
        return None
    return Problem(
        f'source "{node.name}"',
        "it needs Spark",
        f"Use a FileSource of {' or '.join(FORMATS)} without options, or run it on Spark.",
    )


def open_simulated(name: str, source: Source, position: bytes | None, log: SourceLog) -> Enumerator:
    """Open a source as a node does, without Spark."""
    if not isinstance(source, PythonDataSource):
        return source.open(position, log)
    from anabranch.spark.sources.data_source import DataSourceEnumerator  # noqa: PLC0415

    return DataSourceEnumerator(name, source, position)


def read_input_file(source: Source, part: FileSlice) -> pa.RecordBatch:
    """The rows of a file, in their order."""
    if cast("FileSource", source).format == "parquet":
        table = pq.read_table(part.path, schema=source.schema)
    else:
        with open(part.path, encoding="utf-8") as lines:
            table = pa.Table.from_pylist([json.loads(line) for line in lines], source.schema)
    return table.combine_chunks().to_batches()[0]


def read_offsets_between(
    name: str, source: PythonDataSource, part: OffsetSlice
) -> Iterator[tuple[int, list[Any]]]:
    """The batches of a Python data source between two offsets, by the place that reads them."""
    from anabranch.spark.sources import data_source  # noqa: PLC0415

    partitions = data_source.DataSourceEnumerator(name, source, None).partitions([part])
    for number, each in enumerate(partitions):
        yield number % PLACES, list(data_source.read_partition(source, each))
