"""A log as a source: offsets with gaps, rows that are not counted, partitions that become more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import pyarrow as pa

from anabranch.protocol.sources import NO_LIMIT, POSITION, Batch, Limit, SourceLog
from anabranch.records.slices import LogSlice, Slice


@dataclass(frozen=True)
class LogSource:
    """Partition p has a row at each offset that p + 2 does not divide: the others are gaps.

    A turn gives ``turn`` offsets of every partition there is; after each turn of ``grows`` there is
    one more.
    """

    turns: int
    partitions: int = 2
    grows: tuple[int, ...] = ()
    turn: int = 10
    schema: ClassVar[pa.Schema] = pa.schema([("p", pa.int32()), ("n", pa.int64())])

    def open(self, position: bytes | None, log: SourceLog) -> LogEnumerator:
        return LogEnumerator(self, [] if position is None else msgspec.json.decode(position))

    def check(self, slices: Sequence[Slice]) -> None:
        """What stands in a log stays."""

    def log_files(self, position: bytes) -> frozenset[str]:
        return frozenset()

    def read(self, slice: LogSlice, /) -> Iterator[pa.RecordBatch]:
        """Two batches, with their positions."""
        offsets = offsets_of(slice.partition, slice.start, slice.end)
        for part in (offsets[:4], offsets[4:]):
            columns = {"p": [slice.partition] * len(part), "n": part, POSITION: part}
            types = [*self.schema, pa.field(POSITION, pa.int64())]
            yield pa.RecordBatch.from_pydict(columns, schema=pa.schema(types))

    def rows(self) -> list[tuple[int, int]]:
        """All rows, by partition and offset."""
        opened, found = self.open(None, NoLog()), []
        for _ in range(self.turns):
            for part in opened.next().slices:
                assert isinstance(part, LogSlice)
                numbers = offsets_of(part.partition, part.start, part.end)
                found += [(part.partition, n) for n in numbers]
        return sorted(found)


def offsets_of(partition: int, start: int, end: int) -> list[int]:
    return [n for n in range(start, end) if n % (partition + 2)]


class LogEnumerator:
    """``ends`` is where each partition was read up to; the first is read from 0 in every turn."""

    def __init__(self, source: LogSource, ends: list[int]) -> None:
        self._source = source
        self._ends = ends

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        source = self._source
        done = self._ends[0] // source.turn if self._ends else 0
        count = source.partitions + sum(1 for turn in source.grows if turn <= done)
        if done >= source.turns:
            return Batch((), self._position(), 0, ended=True, partitions=count)
        self._ends += [0] * (count - len(self._ends))
        starts = list(self._ends)
        self._ends = [end + source.turn for end in starts]
        slices = tuple(LogSlice(p, start, start + source.turn) for p, start in enumerate(starts))
        ended = done + 1 >= source.turns
        return Batch(slices, self._position(), None, ended=ended, partitions=count)

    def files(self) -> frozenset[str]:
        return frozenset()

    def _position(self) -> bytes:
        return msgspec.json.encode(self._ends)


class NoLog:
    """A source log that nobody needs."""

    def write(self, name_hint: str, data: bytes) -> str:
        raise AssertionError

    def read(self, name: str) -> bytes:
        raise AssertionError
