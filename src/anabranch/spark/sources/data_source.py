"""Python data sources, opened: offsets on the driver, partitions in tasks."""

from __future__ import annotations

import inspect
import json
import pickle
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from anabranch.errors import ChangedDataflow, ReadFailed
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit
from anabranch.records.slices import OffsetSlice, Slice
from anabranch.sources.columns import to_batch
from anabranch.sources.positions import decode_position, encode_position
from anabranch.sources.python_data_source import KIND, OffsetPosition, PythonDataSource
from anabranch.spark.failure import blaming_source
from anabranch.spark.step.rows import BATCH_ROWS

Offset = dict[str, Any]


class DataSourceEnumerator:
    """A Python data source on the driver: asks its reader for offsets and partitions."""

    def __init__(self, name: str, source: PythonDataSource, position: bytes | None) -> None:
        self._name = name
        self._source = source
        # A step asks for partitions while the offer of the next one grows.
        self._lock = threading.RLock()
        with self._asking("streamReader"):
            made = instance_of(source)
            self._format = type(made).name()
            self._reader = reader_of(source, made)
        # Before Spark 4.2 latestOffset had no arguments; Spark still takes such readers.
        self._asks_from = bool(inspect.signature(self._reader.latestOffset).parameters)
        self._limited = self._asks_from and not isinstance(self._reader, SimpleReader)
        if source.max_rows_per_step is not None and not self._limited:
            raise ReadFailed(
                f"Source {name!r} has max_rows_per_step and its reader takes no limits",
                do="Let its latestOffset take (start, limit), or leave max_rows_per_step out.",
            )
        self._offset = None if position is None else self._kept(position)
        self._acknowledged: str | None = None
        report = self._reader.simple if isinstance(self._reader, SimpleReader) else self._reader
        if not source.watch and isinstance(report, SupportsTriggerAvailableNow):
            with self._asking("prepareForTriggerAvailableNow"):
                report.prepareForTriggerAvailableNow()

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out what the reader has between the last offset and its latest one."""
        if self._offset is None:
            with self._asking("initialOffset"):
                self._offset = json.dumps(self._reader.initialOffset())
        start = self._offset
        with self._asking("latestOffset"):
            end = json.dumps(self._latest(json.loads(start), limit))
        if json.loads(end) == json.loads(start):
            return Batch((), self._position(), None, not self._source.watch)
        self._offset = end
        return Batch((OffsetSlice(start, end),), self._position(), None, False)

    def files(self) -> frozenset[str]:
        """Name nothing: the position is all there is."""
        return frozenset()

    def acknowledge(self, position: bytes) -> None:
        """Tell the reader up to where everything is committed."""
        offset = decode_position(position, OffsetPosition, KIND).offset
        if offset == self._acknowledged:
            return
        with self._asking("commit"):
            self._reader.commit(json.loads(offset))
        self._acknowledged = offset

    def close(self) -> None:
        """Stop the reader."""
        with self._asking("stop"):
            self._reader.stop()

    def partitions(self, slices: Sequence[Slice]) -> list[bytes]:
        """The partitions between offsets, pickled for the tasks that read them."""
        with self._asking("partitions"):
            spans = [part for part in slices if isinstance(part, OffsetSlice)]
            ends = [(json.loads(span.start), json.loads(span.end)) for span in spans]
            found = [each for start, end in ends for each in self._reader.partitions(start, end)]
            return [cast("bytes", cloudpickle.dumps(each)) for each in found]  # type: ignore[no-untyped-call]

    def _latest(self, start: Offset, limit: Limit) -> Offset:
        if not self._asks_from:
            return cast("Offset", cast("Any", self._reader).latestOffset())
        return self._reader.latestOffset(start, self._limit(limit))

    def _limit(self, wanted: Limit) -> ReadLimit:
        """Rows where the reader is used to rows: it may know no other limit than its own."""
        usual = self._reader.getDefaultReadLimit()
        rows = self._source.max_rows_per_step
        if rows is None and isinstance(usual, ReadMaxRows):
            rows = usual.max_rows
        if rows is None or not self._limited:
            return usual
        return ReadMaxRows(rows if wanted.rows is None else min(rows, wanted.rows))

    def _position(self) -> bytes:
        assert self._offset is not None
        return encode_position(OffsetPosition(source=KIND, name=self._format, offset=self._offset))

    def _kept(self, position: bytes) -> str:
        kept = decode_position(position, OffsetPosition, KIND)
        if kept.name != self._format:
            raise ChangedDataflow(
                f"Source {self._name!r} was the data source {kept.name!r} so far and is now "
                f"{self._format!r}: offsets of one mean nothing to the other",
                do="Give the new source another name, or start in a new directory.",
            )
        return kept.offset

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        advice = "Mend the data source and run the pipeline again: it continues where it was."
        with blaming_source(self._name, f"{verb} of its reader", advice), self._lock:
            yield


def instance_of(source: PythonDataSource) -> DataSource:
    """The data source itself, made as Spark makes it."""
    made: Any = source.source
    if isinstance(made, type):
        made = made(CaseInsensitiveDict(dict(source.options)))
    return cast("DataSource", made)


def reader_of(source: PythonDataSource, made: DataSource) -> DataSourceStreamReader:
    """A new reader: the data source's own, or its simple one made into one."""
    schema = from_arrow_schema(source.schema)
    try:
        return made.streamReader(schema)
    except PySparkNotImplementedError:
        return SimpleReader(made.simpleStreamReader(schema))


def read_partition(source: PythonDataSource, partition: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, whatever the reader gives them as. Runs in tasks."""
    made = instance_of(source)
    rows: Iterable[Any] = reader_of(source, made).read(pickle.loads(partition))
    given = iter(rows)
    first = next(given, None)
    if first is None:
        return
    given = chain([first], given)
    if not isinstance(first, pa.RecordBatch):
        # Values become Arrow's as Spark makes them: rows, dates, decimals and the rest.
        shape = from_arrow_schema(source.schema)
        given = iter(records_to_arrow_batches(given, BATCH_ROWS, shape, made))
    for batch in given:
        yield to_batch(batch, source.schema, batch.num_rows)


@dataclass
class SpanPartition(InputPartition):
    """All that a simple reader has between two offsets."""

    start: Offset
    end: Offset


class SimpleReader(DataSourceStreamReader):
    """A simple reader as one with partitions: a single one, read by ``readBetweenOffsets``.

    What ``read`` gives on the driver only tells how far there is something: a step that runs again
    must read the same, so even the first reading is the repeatable one.
    """

    def __init__(self, simple: SimpleDataSourceStreamReader) -> None:
        self.simple = simple

    def initialOffset(self) -> Offset:
        """Where the simple reader begins."""
        return self.simple.initialOffset()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far there is something. Rows that come without a new offset would be lost."""
        rows, end = self.simple.read(start)
        if end == start and next(iter(rows), None) is not None:
            raise ValueError("read() gave rows and the offset it started from")
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One."""
        return [SpanPartition(start, end)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read between the offsets again, as often as asked."""
        span = cast("SpanPartition", partition)
        return self.simple.readBetweenOffsets(span.start, span.end)

    def commit(self, end: Offset) -> None:
        """Pass it on."""
        self.simple.commit(end)
