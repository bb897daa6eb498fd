"""Slices: names of input, never input itself. Plans hold them, tasks read them.

Whoever made a slice knows what it means; everybody else asks it what ``SourceSlice`` says. A new
kind is a class here, so that the journal can be decoded, and a source that makes and reads it.
"""

from __future__ import annotations

from typing import Self, TypeAlias

import msgspec


class SourceSlice(msgspec.Struct, frozen=True):
    """What every slice can be asked. As it stands here: of input that has no numbered rows."""

    @property
    def partition(self) -> int | None:
        """The partition that it is of; None where input has no partitions that are known."""
        return None

    @property
    def first(self) -> int | None:
        """The smallest position that a row of it may have; None where rows have none."""
        return None

    @property
    def past(self) -> int | None:
        """What is larger than all positions of its rows; None where rows have none."""
        return None

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where that is known only when it was read."""
        return None

    @property
    def bytes(self) -> int:
        """How many bytes it has, if it is of a file."""
        return 0

    def follows(self, last: Self | None) -> bool:
        """Whether nothing lies between it and the one read last of its partition, if any."""
        return True


class FileSlice(SourceSlice, frozen=True, tag="file"):
    """A whole file, as it was when it was planned.

    `path` is absolute. Spark takes patterns for paths: give it `spark_path(path)`.
    """

    path: str
    size: int
    mtime_ns: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.size


class LogSlice(SourceSlice, frozen=True, tag="log"):
    """What a log has from offset `start` to `end` (exclusive) of one partition.

    Not every offset has a row, and the first may be any: rows say their own position.
    """

    partition: int
    start: int
    end: int

    @property
    def first(self) -> int:
        """Where it starts."""
        return self.start

    @property
    def past(self) -> int:
        """Where it ends."""
        return self.end

    def follows(self, last: Self | None) -> bool:
        """Whether it starts where the last one ended."""
        return last is None or self.start == last.end


class RangeSlice(LogSlice, frozen=True, tag="range"):
    """The rows `start` to `end` (exclusive) of one partition. Row i of it has position start+i."""

    @property
    def rows(self) -> int:
        """One row at each position."""
        return self.end - self.start

    def follows(self, last: Self | None) -> bool:
        """Whether it starts where the last one ended; the first one with row 0."""
        return self.start == (0 if last is None else last.end)


class OffsetSlice(SourceSlice, frozen=True, tag="offsets"):
    """All rows between two offsets of a Python data source, each as JSON text.

    Into which partitions they fall is asked when the step runs: what stands in the journal must
    not be code.
    """

    start: str
    end: str


#: What a plan says about input. The tag makes it decodable from the journal.
Slice: TypeAlias = FileSlice | LogSlice | RangeSlice | OffsetSlice
