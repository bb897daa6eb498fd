"""State as a DataFrame: each task reads a range of bins from the files of one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.errors import QueryTooLarge
from anabranch.plan.state_view import StateView, bin_ranges
from anabranch.spark.failure import carrying_errors
from anabranch.spark.step.assembly import Assembly
from anabranch.task.queries import QueryLimits
from anabranch.task.state_reader import read_view

PACKED = pa.schema([pa.field("rows", pa.binary())])
"""Batches of a result, each as one value: an Arrow stream."""


def state_frame(assembly: Assembly, view: StateView, store: Path, tasks: int) -> DataFrame:
    """An operator's state at one step, as a DataFrame that reads the files on use."""
    parts = min(tasks, view.bins)
    ranges = assembly.query(f"select id from range(0, {parts}, 1, {parts})")
    task = partial(_read_bins, view, str(store), parts)
    return assembly.map_in_arrow(ranges, ["id"], task, view.schema())


def _read_bins(
    view: StateView, store: str, parts: int, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Task: read the rows of the numbered ranges of bins."""
    with carrying_errors():
        ranges = bin_ranges(view.bins, parts)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_view(view, Path(store), ranges[number])


def within_limits(
    limits: QueryLimits, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Task: pack the rows of each batch; ``QueryTooLarge`` if they are too many."""
    with carrying_errors():
        rows = size = 0
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            if rows > limits.rows:
                raise _too_large(f"{limits.rows:,} rows", "limit_rows")
            if size > limits.bytes:
                raise _too_large(f"{limits.bytes:,} bytes", "limit_bytes")
            packed = pa.BufferOutputStream()
            with pa.ipc.new_stream(packed, batch.schema) as stream:
                stream.write_batch(batch)
            data = pa.array([packed.getvalue().to_pybytes()], type=pa.binary())
            yield pa.RecordBatch.from_arrays([data], schema=PACKED)


def unpack(packed: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows of packed batches; ``schema`` is for a result without any."""
    tables = [pa.ipc.open_stream(data).read_all() for data in packed]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _too_large(limit: str, name: str) -> QueryTooLarge:
    return QueryTooLarge(
        f"The result has more than {limit}",
        do=f"Aggregate, add a limit to the query, or raise {name}.",
    )
