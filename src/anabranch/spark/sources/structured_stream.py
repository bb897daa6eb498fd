"""Structured Streaming as a source: a query that fills the input log, and steps that read it.

Operations
    The query hands every batch to ``_log``: its tasks write files under names of their own
    attempt, then the batch's *marker*, created exclusively, names those that count. ``next`` hands
    out the files of marked batches, in order.

Guarantees
    A batch counts once. One that Spark repeats finds its marker, or a position behind it, and is
    skipped; files without a marker count for nothing. Files, marker and their directory are
    synced before Spark is told that the batch is done.

Failure
    A query that failed makes the pipeline fail when everything logged before has been read.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.dataflow.types.schema import parse_schema, to_ddl
from anabranch.errors import AnabranchError, ChangedDataflow, NameTaken, ReadFailed, StreamFailed
from anabranch.operators.error_text import short
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit
from anabranch.records.slices import FileSlice
from anabranch.sources.file_uri import file_tag, hadoop_path
from anabranch.sources.positions import decode_position, encode_position
from anabranch.sources.structured_stream import (
    KIND,
    BatchPosition,
    LoggedBatch,
    LoggedFile,
    StructuredStreamSource,
    batch_of,
    decode_marker,
    file_name,
    marker_name,
)
from anabranch.spark.failure import blaming_source, brief, carrying_errors, quietly, rebuilt
from anabranch.store.files import (
    create_bulk,
    create_file,
    ensure_directory,
    list_names,
    read_file,
    remove_file,
)

LOG_ROOM = "input"
QUERY_ROOM = "query"

_WRITTEN = "name string, rows bigint, bytes bigint"


class StreamEnumerator:
    """The log of a streaming query. ``next`` starts the query; batches arrive in its thread."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        source: StructuredStreamSource,
        store: Path,
        position: bytes | None,
    ) -> None:
        """Find the query's checkpoint; ``ChangedDataflow`` if it is not the position's."""
        self._spark = spark
        self._name = name
        self._source = source
        self._store = store
        self._columns = _plain_ddl(source.schema)
        self._checkpoint = store / QUERY_ROOM / name
        self._id: str | None = None
        self._query: StreamingQuery | None = None
        self._failure: AnabranchError | None = None
        self._moved = threading.Condition()
        self._stopping = False
        self._forgotten = 0
        self._next = 0
        if position is not None:
            kept = decode_position(position, BatchPosition, KIND)
            self._next = kept.next
            self._refuse_other_query(kept.query)

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out the next batches that are logged. Row limits are not heeded."""
        if self._query is None:
            self._query = self._start()
        # Asked before the log is looked at: what the query logs last is then seen.
        active = self._query.isActive
        taken = self._take(limit)
        files = [file for logged in taken for file in logged.files]
        position = BatchPosition(source=KIND, query=self._query_id(), next=self._next)
        ended = not taken and not active
        if ended and self._failure is not None:
            raise self._failure
        if ended and (error := self._query.exception()) is not None:
            raise self._failed(str(error)) from error
        slices = tuple(self._slice(file) for file in files)
        return Batch(slices, encode_position(position), sum(file.rows for file in files), ended)

    def files(self) -> frozenset[str]:
        """Name nothing: the log of batches has a room of its own."""
        return frozenset()

    def forget(self, positions: Sequence[bytes]) -> None:
        """Remove the batches that all of these positions have passed."""
        floor = min(decode_position(position, BatchPosition, KIND).next for position in positions)
        if floor <= self._forgotten:
            return
        room = self._room()
        for name in list_names(room):
            batch = batch_of(name)
            if batch is not None and batch < floor:
                remove_file(room / name)
        self._forgotten = floor

    def acknowledge(self, position: bytes) -> None:
        """Do nothing: the query has what it read in its log, which ``forget`` clears."""

    def close(self) -> None:
        """Stop the query; a batch under way is repeated when the pipeline runs again."""
        with self._moved:
            self._stopping = True
            self._moved.notify_all()
        if self._query is not None:
            with quietly():
                self._query.stop()

    # The steps' side.

    def _start(self) -> StreamingQuery:
        source = self._source
        rows = made_frame(self._spark, self._name, source)
        ddl = frame_ddl(rows)
        if _plain_ddl(parse_schema(ddl)) != self._columns:
            raise ReadFailed(
                f"Source {self._name!r} gives the columns {ddl} instead of {to_ddl(source.schema)}",
                do="Correct the schema, or leave it out.",
            )
        writer = rows.writeStream.foreachBatch(self._log).outputMode(source.output_mode)
        writer = writer.option("checkpointLocation", hadoop_path(str(self._checkpoint)))
        if not source.watch:
            writer = writer.trigger(availableNow=True)
        elif source.every is not None:
            writer = writer.trigger(processingTime=source.every)
        ensure_directory(self._checkpoint, within=self._store)
        try:
            with quietly():
                return writer.start()
        except PySparkException as error:
            raise self._failed(str(error)) from error

    def _take(self, limit: Limit) -> list[LoggedBatch]:
        """The next batches up to the bounds, at least one. Files of a step differ in their tags."""
        room = self._source.max_bytes_per_step
        if limit.bytes is not None:
            room = min(room, limit.bytes)
        taken: list[LoggedBatch] = []
        tags: set[int] = set()
        while len(taken) < self._source.max_batches_per_step:
            logged = self._logged(self._next)
            if logged is None:
                break
            own = self._tags(logged.files)
            room -= sum(file.bytes for file in logged.files)
            if taken and (room < 0 or own & tags):
                break
            tags |= own
            taken.append(logged)
            with self._moved:
                self._next += 1
                self._moved.notify_all()
        return taken

    def _logged(self, batch: int) -> LoggedBatch | None:
        if self._known_query_id() is None:
            return None
        path = self._room() / marker_name(batch)
        if (data := read_file(path)) is None:
            return None
        logged = decode_marker(data, str(path))
        if logged.schema != self._columns:
            raise ChangedDataflow(
                f"The input log of source {self._name!r} has rows with the columns "
                f"{logged.schema}, which are not read yet, and the source has others now",
                where=str(path),
                do="Run the former dataflow until it has read them, then the changed one.",
            )
        return logged

    def _slice(self, file: LoggedFile) -> FileSlice:
        path = self._room() / file.name
        return FileSlice(str(path), file.bytes, path.stat().st_mtime_ns)

    def _tags(self, files: Iterable[LoggedFile]) -> set[int]:
        return {file_tag(str(self._room() / file.name)) for file in files}

    def _failed(self, text: str) -> StreamFailed:
        return StreamFailed(
            f"The streaming query of source {self._name!r} failed: {brief(text)}",
            where=str(self._checkpoint),
            do="Mend the cause and run the pipeline again: the query continues where it was.",
        )

    def _known_query_id(self) -> str | None:
        """The id that Spark has given the query: for ever, in its checkpoint."""
        if self._id is None:
            data = read_file(self._checkpoint / "metadata")
            self._id = None if data is None else str(json.loads(data)["id"])
        return self._id

    def _query_id(self) -> str:
        if (found := self._known_query_id()) is None:
            raise self._failed("its checkpoint has no metadata")
        return found

    def _refuse_other_query(self, kept: str) -> None:
        if (found := self._known_query_id()) != kept:
            raise ChangedDataflow(
                f"The checkpoint of source {self._name!r}'s streaming query is "
                f"{'gone' if found is None else 'another one'}: the query would read its input "
                "again from the start",
                where=str(self._checkpoint),
                do="Restore the directory from a copy, or start in a new one.",
            )

    def _room(self) -> Path:
        return self._store / LOG_ROOM / self._name / self._query_id()

    # The query's side: called by Spark, in another thread.

    def _log(self, rows: DataFrame, batch: int) -> None:
        try:
            if batch < self._next or self._logged(batch) is not None:
                return
            self._wait_for_room(batch)
            logged = LoggedBatch(self._columns, self._written(rows, batch))
            marker = self._room() / marker_name(batch)
            # Taken: an attempt that was given up for lost was faster, and its files count.
            with suppress(NameTaken):
                create_file(marker, msgspec.json.encode(logged), within=self._store)
        except AnabranchError as error:
            self._failure = error
            raise

    def _wait_for_room(self, batch: int) -> None:
        with self._moved:
            ahead = self._source.max_ahead
            self._moved.wait_for(lambda: self._stopping or batch - self._next < ahead)
            if self._stopping:
                raise InterruptedError("the pipeline ends")

    def _written(self, rows: DataFrame, batch: int) -> tuple[LoggedFile, ...]:
        ensure_directory(self._room(), within=self._store)
        task = partial(log_task, str(self._store), str(self._room()), batch)
        while True:
            try:
                written = rows.mapInArrow(task, _WRITTEN).collect()
            except PySparkException as error:
                raise rebuilt(str(error)) or self._failed(str(error)) from error
            files = sorted((LoggedFile(*row) for row in written), key=lambda file: file.name)
            if len(self._tags(files)) == len(files):
                return tuple(files)


def log_task(
    store: str, room: str, batch: int, arriving: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a partition of a batch to a file of its own; yield its name, rows and bytes."""
    with carrying_errors():
        table = pa.Table.from_batches(got) if (got := list(arriving)) else None
        if table is None or not table.num_rows:
            return
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        data = out.getvalue()
        name = file_name(batch, partition, secrets.token_hex(16))
        create_bulk(Path(room) / name, data, within=Path(store))
        yield pa.RecordBatch.from_pydict(
            {"name": [name], "rows": [table.num_rows], "bytes": [data.size]}
        )


def made_frame(spark: SparkSession, name: str, source: StructuredStreamSource) -> DataFrame:
    """What the user's function makes: a streaming DataFrame, in a session of its own."""
    where = "its function make"
    with blaming_source(name, where, "Mend the function and run the pipeline again."):
        made: Any = source.make(spark.newSession())
    if not isinstance(made, DataFrame) or not made.isStreaming:
        raise ReadFailed(
            f"Source {name!r} made no streaming DataFrame: {short(made)}",
            where=where,
            do="Return one, such as spark.readStream.format('rate').load(). For files that are "
            "there, use FileSource.",
        )
    return made


def frame_ddl(frame: DataFrame) -> str:
    """The columns of a DataFrame, in Spark's words."""
    return str(frame._jdf.schema().toDDL())


def _plain_ddl(schema: pa.Schema) -> str:
    """The columns without what does not matter to a log: comments, and whether NULL is allowed."""
    return to_ddl(pa.schema([pa.field(field.name, field.type) for field in schema]))
