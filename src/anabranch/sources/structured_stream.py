"""Structured Streaming as a source: what the user says about one, and what its log looks like.

The query that fills the log is in `spark/sources/structured_stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from anabranch.errors import CorruptEntry
from anabranch.sources.arguments import as_count, as_schema, as_size, set_fields
from anabranch.sources.files import SparkFiles
from anabranch.sources.opened_by_spark import OpenedBySpark
from anabranch.sources.positions import Position, PositionOnly

KIND = "structured-stream"
OUTPUT_MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True, init=False)
class StructuredStreamSource(OpenedBySpark, SparkFiles, PositionOnly):
    """The rows of any streaming DataFrame: `make(spark)` gives it.

    A streaming query runs beside the pipeline, in a session of its own, from start to end of it.
    Each of its batches is first written to the input log in the pipeline's directory, once: a
    batch that Spark repeats after a failure is skipped. Steps read the log in the order of
    batches, partitions and rows. The query's checkpoint is in the pipeline's directory too; it
    goes on where it was, and so `make` should give the same query each time, as Spark asks for.

    `make` is called whenever the pipeline starts, and once more if no schema is given. With
    `watch=False` the query takes what is available when it starts (`availableNow`), and the source
    ends; `every` is the interval between batches, such as `"10 seconds"`.

    A step reads whole batches, at least one: up to `max_batches_per_step` and
    `max_bytes_per_step`, in files of the log. The query waits when it is `max_ahead` batches ahead
    of the steps.
    """

    what: ClassVar[str] = "a streaming DataFrame"

    make: Callable[[Any], Any]
    given: pa.Schema | None
    watch: bool
    every: str | None
    output_mode: str
    max_batches_per_step: int
    max_bytes_per_step: int
    max_ahead: int

    def __init__(
        self,
        make: Callable[[Any], Any],
        schema: str | pa.Schema | None = None,
        *,
        watch: bool = True,
        every: str | None = None,
        output_mode: str = "append",
        max_batches_per_step: int = 16,
        max_bytes_per_step: int | str = "1g",
        max_ahead: int = 64,
    ) -> None:
        """Check and keep the arguments. `make` is not called before the pipeline starts."""
        if not callable(make):
            raise TypeError(f"make must be callable with a SparkSession, not {make!r}")
        if every is not None and not watch:
            raise ValueError("every= is for a source that watches: leave it out, or watch=False")
        if output_mode not in OUTPUT_MODES:
            raise ValueError(f"output_mode must be one of {OUTPUT_MODES}, not {output_mode!r}")
        set_fields(
            self,
            make=make,
            given=None if schema is None else as_schema(schema),
            watch=bool(watch),
            every=every,
            output_mode=output_mode,
            max_batches_per_step=as_count(max_batches_per_step, "max_batches_per_step"),
            max_bytes_per_step=as_size(max_bytes_per_step, "max_bytes_per_step"),
            max_ahead=as_count(max_ahead, "max_ahead"),
        )


class BatchPosition(Position, frozen=True, kw_only=True):
    """Which batch of which query comes next."""

    query: str
    next: int


class LoggedFile(msgspec.Struct, frozen=True):
    """A file of a logged batch: its name in the log's directory, and its size."""

    name: str
    rows: int
    bytes: int


class LoggedBatch(msgspec.Struct, frozen=True):
    """What a batch's marker says: the batch is logged, and these are its files, in order."""

    schema: str
    files: tuple[LoggedFile, ...]


def marker_name(batch: int) -> str:
    """The file whose existence says that a batch is logged.

    >>> marker_name(7)
    '000000000007.json'
    """
    return f"{batch:012d}.json"


def file_name(batch: int, partition: int, attempt: str) -> str:
    """A name for a file of a batch; names sort as batches and partitions do.

    >>> file_name(7, 1, "ab12")
    '000000000007-00000001-ab12.parquet'
    """
    return f"{batch:012d}-{partition:08d}-{attempt}.parquet"


def batch_of(name: str) -> int | None:
    """The batch that a name in the log belongs to; None for a foreign name.

    >>> batch_of(marker_name(7)), batch_of(file_name(7, 1, "ab12")), batch_of(".tmp")
    (7, 7, None)
    """
    number = name[:12]
    return int(number) if number.isdigit() and name[12:13] in (".", "-") else None


def decode_marker(data: bytes, where: str) -> LoggedBatch:
    """Read a marker back."""
    try:
        return msgspec.json.decode(data, type=LoggedBatch)
    except msgspec.DecodeError as error:
        raise CorruptEntry(
            f"the marker of a logged batch cannot be read: {error}",
            where=where,
            do="Restore the file from a copy.",
        ) from error
