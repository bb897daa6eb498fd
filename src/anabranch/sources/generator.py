"""Rows that a Python function makes up: for demos, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.dataflow.functions import describe_function
from anabranch.errors import ChangedDataflow, ReadFailed
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit, SourceLog
from anabranch.records.slices import RangeSlice
from anabranch.sources.arguments import as_count, as_schema, set_fields
from anabranch.sources.columns import to_batch
from anabranch.sources.positions import Position, PositionOnly, decode_position, encode_position

_KIND = "generator"

#: Called with partition, start and end; returns a pyarrow Table or RecordBatch or a mapping of
#: column names to arrays, with end - start rows.
Generate = Callable[[int, int, int], object]


@dataclass(frozen=True, slots=True, init=False)
class GeneratorSource(PositionOnly):
    """Rows from `function(partition, start, end)`, called in tasks.

    The function must return exactly `end - start` rows that fit the schema, and what row i of a
    partition is must depend on the partition and i alone: a step that runs again calls it again.
    (A random generator seeded with the partition gives other rows when rows are cut otherwise:
    seed by row, or use a hash of i.)

    `rows` is the total: of all partitions together, over all steps and restarts; None is no end.
    `rows_per_step` is for all partitions together too. Rows are dealt out evenly: of any first n
    rows, no partition has more than one row more than another.

    >>> source = GeneratorSource(lambda partition, start, end: {"n": range(start, end)},
    ...                          "n bigint", rows_per_step=2, rows=3)
    >>> next(source.read(RangeSlice(0, 0, 2))).to_pydict()
    {'n': [0, 1]}
    """

    function: Generate
    schema: pa.Schema
    partitions: int
    rows_per_step: int
    rows: int | None

    def __init__(
        self,
        function: Generate,
        schema: str | pa.Schema,
        partitions: int = 1,
        rows_per_step: int = 100_000,
        rows: int | None = None,
    ) -> None:
        """Check and keep the arguments. The function is not called before a step reads."""
        if not callable(function):
            raise TypeError(f"function must be callable with three numbers, not {function!r}")
        set_fields(
            self,
            function=function,
            schema=as_schema(schema),
            partitions=as_count(partitions, "partitions"),
            rows_per_step=as_count(rows_per_step, "rows_per_step"),
            rows=None if rows is None else as_count(rows, "rows", least=0),
        )

    def open(self, position: bytes | None, log: SourceLog) -> GeneratorEnumerator:
        """Go on after `position`. The number of partitions must be the same as ever."""
        if position is None:
            return GeneratorEnumerator(self, 0)
        kept = decode_position(position, GeneratorPosition, _KIND)
        if kept.partitions != self.partitions:
            raise ChangedDataflow(
                f"a generator with {kept.partitions} partitions now has {self.partitions}",
                where=describe_function(self.function),
                do=f"Set partitions={kept.partitions}, or start in a new directory.",
            )
        return GeneratorEnumerator(self, kept.rows)

    def read(self, slice: RangeSlice, /) -> Iterator[pa.RecordBatch]:
        """Call the function and make its result fit; `ReadFailed` if it raises or does not."""
        try:
            data = self.function(slice.partition, slice.start, slice.end)
            batch = to_batch(data, self.schema, slice.end - slice.start)
        except Exception as error:
            raise ReadFailed(
                f"a generator failed: {type(error).__name__}: {error}",
                where=f"{describe_function(self.function)}, partition {slice.partition}, "
                f"rows {slice.start} to {slice.end}",
            ) from error
        yield batch


class GeneratorPosition(Position, frozen=True, kw_only=True):
    """How many rows of all partitions together have been handed out."""

    partitions: int
    rows: int


class GeneratorEnumerator:
    """Hands out the next rows of a `GeneratorSource`, spread over its partitions."""

    def __init__(self, source: GeneratorSource, rows: int) -> None:
        self._source = source
        self._rows = rows

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out a step's rows. `limit.bytes` cannot be heeded."""
        start, end = self._rows, self._rows + self._room(limit.rows)
        self._rows = end
        count = self._source.partitions
        ranges = ((p, _share(start, p, count), _share(end, p, count)) for p in range(count))
        position = GeneratorPosition(source=_KIND, partitions=count, rows=end)
        return Batch(
            slices=tuple(RangeSlice(p, first, last) for p, first, last in ranges if first < last),
            position=encode_position(position),
            rows=end - start,
            ended=self._source.rows is not None and end >= self._source.rows,
            full=self._source.rows is None or end < self._source.rows,
        )

    def files(self) -> frozenset[str]:
        """Name nothing: the position is all there is."""
        return frozenset()

    def _room(self, wanted: int | None) -> int:
        room = self._source.rows_per_step
        if wanted is not None:
            room = min(room, max(wanted, 1))
        if self._source.rows is not None:
            room = min(room, max(self._source.rows - self._rows, 0))
        return room


def _share(rows: int, partition: int, partitions: int) -> int:
    """How many of the first `rows` rows are this partition's: they are dealt out in turn."""
    return (rows + partitions - 1 - partition) // partitions
