"""Read input: files in the JVM, other sources in Python's read tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.graph import SourceNode
from anabranch.dataflow.sql.sql_text import quote
from anabranch.dataflow.types.schema import to_ddl
from anabranch.messages import Message, PartitionRead, Report, encode
from anabranch.operators.control.messaging import Passage
from anabranch.operators.rows import Rows
from anabranch.plan.boundary import PREFIX, Boundary
from anabranch.plan.controls import messages_for
from anabranch.plan.physical import SeenBy, TimeAssignment
from anabranch.protocol.sources import PythonSource, Source, read_by_spark
from anabranch.records.plan import Plan
from anabranch.records.slices import Slice
from anabranch.sources.files import CHECKED_FORMATS, FileSource, spark_path
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.spark.failure import blaming_source, carrying_errors
from anabranch.spark.sources.data_source import read_partition
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.rows import batches, pack_notes, pack_rows, reader_order
from anabranch.spark.step.task import TaskSpec
from anabranch.spark.worker_memory import freeze_long_lived
from anabranch.task.event_times import LatestTimes, told_times
from anabranch.task.reader import Positions, with_positions, without_own_times

_FILE = f"crc32(cast(_metadata.file_path as binary)) as {PREFIX}o0"
_BLOCK = f"_metadata.file_block_start as {PREFIX}o1"


class ReadPart(msgspec.Struct, frozen=True):
    """The part of one partition that a read task reads: a slice as it was planned.

    Or a pickled partition of a Python data source: for one step's tasks, never for the journal.
    """

    partition: int
    given: Slice | bytes

    @property
    def first(self) -> int | None:
        """Where its rows begin; None if they are counted from 0 on."""
        return None if isinstance(self.given, bytes) else self.given.first

    @property
    def numbered(self) -> int | None:
        """The number of its partition; None if that names another partition in every step."""
        return None if isinstance(self.given, bytes) else self.partition

    @property
    def place(self) -> str:
        """What to call it in an error."""
        place = f"partition {self.partition}"
        if isinstance(self.given, bytes):
            return place
        return f"{place}, rows {self.given.first} to {self.given.past}"

    def read(self, source: Source) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Its rows, and where they stand."""
        if isinstance(self.given, bytes):
            batches = read_partition(cast("PythonDataSource", source), self.given)
            return with_positions(batches, source.schema)
        batches = cast("PythonSource[Any]", source).read(self.given)
        return with_positions(batches, source.schema, self.given.first or 0, self.given.past)


class ReadOrder(msgspec.Struct, frozen=True):
    """The order of one read task: which parts of one source to read, and its messages.

    ``next_partitions`` is the number of partitions that hear of its attempt. ``clock_us`` is the
    clock of the step, for the times of rows.
    """

    producer: int
    number: int
    worker: int
    parts: tuple[ReadPart, ...]
    messages: tuple[Message, ...] = ()
    next_partitions: int = 1
    clock_us: int = 0


READ_ORDER = "read_order"
encode_order = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(ReadOrder).decode


class FileReader:
    """Reads files of one source; created once, since every call to the JVM costs time.

    A line that does not fit the schema fails the step, unless the reader's ``mode`` says otherwise.
    """

    def __init__(self, assembly: Assembly, source: Source, *, ordered: bool) -> None:
        """``ordered``: rows carry their file and their place in it."""
        format, options, schema = "parquet", dict[str, str](), source.schema
        self._more: list[str] = []
        if isinstance(source, FileSource):
            format, options = source.format, dict(source.options)
            if format.lower() in CHECKED_FORMATS and "mode" not in map(str.lower, options):
                options["mode"] = "FAILFAST"
        if isinstance(source, FileSource) and source.separates:
            *_, raw, file = schema.names
            schema = schema.remove(len(schema) - 1)
            options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": raw}
            self._more.append(f"_metadata.file_path as {quote(file)}")
        if ordered:
            self._more += [_FILE, _BLOCK]
        self._assembly = assembly
        self._reader = assembly.spark.read.format(format).schema(to_ddl(schema)).options(**options)

    def load(self, paths: Sequence[str]) -> DataFrame:
        """Let Spark list these files."""
        return self._assembly.load(self._reader, [spark_path(path) for path in paths])

    def rows(self, files: DataFrame) -> DataFrame:
        """The rows of files, with the additional columns that steps need."""
        return self._assembly.add_columns(files, self._more)


def malformed_row(
    spark: SparkSession, source: FileSource, paths: Sequence[str]
) -> tuple[str, str] | None:
    """The file and the raw text of a row that does not fit the schema; None if all fit."""
    parted = source.separated()
    *_, raw, file = parted.schema.names
    reader = FileReader(Assembly(spark), parted, ordered=False)
    found = reader.rows(reader.load(paths)).where(f"{quote(raw)} is not null").limit(1).collect()
    return (found[0][file], found[0][raw]) if found else None


def read_orders(
    node: SourceNode, number: int, parts: Sequence[ReadPart], plan: Plan, next_partitions: int
) -> list[ReadOrder]:
    """One order per read task: each partition goes to the worker that it is assigned to."""
    dealt: dict[int, list[ReadPart]] = {}
    for part in parts:
        dealt.setdefault(plan.reader(node.name, part.partition), []).append(part)
    return [
        ReadOrder(
            node.id,
            number,
            worker,
            tuple(each),
            messages_for(plan, node.name, worker, ()),
            next_partitions,
            plan.clock_ns // 1000,
        )
        for worker, each in sorted(dealt.items())
    ]


def read_task(spec: TaskSpec, arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read what the orders name; yield rows and notes."""
    freeze_long_lived()
    with carrying_errors():
        orders = [
            _decode_order(order) for batch in arriving for order in batch.column(0).to_pylist()
        ]
        program = spec.program()
        boundary = program.boundary(spec.level + 1)
        producers = python_producers(boundary)
        for order in orders:
            node = cast("SourceNode", program.physical.node(order.producer))
            started = time.perf_counter()
            attempt = spec.attempt(node.name, order.worker)
            passage = Passage(node.name, order.messages, {node.id: 1})
            read: list[PartitionRead] = []
            times = LatestTimes(read_assignments(boundary, node.id), order.clock_us)
            for part in order.parts:
                rows = 0
                for table in _read(boundary, producers, node, order, part, times):
                    rows += table.num_rows
                    yield from batches(table)
                read.append(PartitionRead(node.name, part.partition, rows, part.first))
            for _ in (*passage.before_data(node.id), *passage.after_data(node.id)):
                pass  # Positions are in the plan: a source has no state to take or leave.
            seconds = {"read": time.perf_counter() - started}
            passed = passage.passed({node.id: node.name})
            report = Report(
                attempt,
                (),
                (),
                (),
                (),
                seconds,
                passed=passed,
                read=tuple(read),
                times=times.found(),
            )
            heard = ((part, encode(attempt)) for part in range(order.next_partitions))
            notes = [(0, encode(report)), *heard]
            yield from batches(pack_notes(boundary, producers, notes))


def python_producers(boundary: Boundary) -> list[int]:
    """The sources that Python reads, among those that the level wants."""
    nodes = {producer: boundary.physical.node(producer) for producer in boundary.needed_producers()}
    return [
        producer
        for producer, node in nodes.items()
        if isinstance(node, SourceNode) and not read_by_spark(node.source)
    ]


def read_assignments(boundary: Boundary, source: int) -> list[TimeAssignment]:
    """Where rows get times that the read tasks of a source see."""
    found = boundary.assignments(source)
    return [each for each in found if each.seen_by is SeenBy.READER]


def _read(
    boundary: Boundary,
    producers: Sequence[int],
    node: SourceNode,
    order: ReadOrder,
    part: ReadPart,
    times: LatestTimes,
) -> Iterator[pa.Table]:
    advice = "Fix the source and run the pipeline again: it continues with this step."
    with blaming_source(node.name, part.place, advice):
        for batch, positions in part.read(node.source):
            row_order = reader_order(order.number, part.partition, positions)
            times.see(batch, part.numbered)
            told = told_times(node.name, batch) if times.told else None
            values = pa.Table.from_batches([without_own_times(batch, node.source.schema)])
            yield pack_rows(boundary, producers, node.id, Rows(values, order=row_order, times=told))
