"""Slices: names of input. Plans hold them, tasks read them.

Only the source that made a slice knows its meaning; others use the properties of ``SourceSlice``. A
new kind is a class here, for the journal to decode, and a source that makes and reads it.
"""

from __future__ import annotations

from typing import Self, TypeAlias

import msgspec


class SourceSlice(msgspec.Struct, frozen=True):
    """What every slice can tell. These defaults are those of input without numbered rows."""

    @property
    def partition(self) -> int | None:
        """Its partition, if the input has known partitions."""
        return None

    @property
    def first(self) -> int | None:
        """The smallest position that its rows may have, if they have positions."""
        return None

    @property
    def past(self) -> int | None:
        """A position beyond all of its rows, if they have positions."""
        return None

    @property
    def rows(self) -> int | None:
        """The number of rows, if it is known ahead."""
        return None

    @property
    def bytes(self) -> int:
        """The size of the file, or 0."""
        return 0

    def follows(self, last: Self | None) -> bool:
        """Whether nothing lies between the last slice read of its partition, if any, and this."""
        return True


class FileSlice(SourceSlice, frozen=True, tag="file"):
    """A whole file, as of its plan.

    ``path`` is absolute. Spark interprets paths as patterns: give it ``spark_path(path)``.
    """

    path: str
    size: int
    mtime_ns: int

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.size


class LogSlice(SourceSlice, frozen=True, tag="log"):
    """The offsets from ``start`` to ``end`` (exclusive) of a log's partition.

    Offsets may have gaps, so rows carry their positions.
    """

    partition: int
    start: int
    end: int

    @property
    def first(self) -> int:
        """The first offset."""
        return self.start

    @property
    def past(self) -> int:
        """The offset after the last."""
        return self.end

    def follows(self, last: Self | None) -> bool:
        """Whether it starts where the last one ended."""
        return last is None or self.start == last.end


class RangeSlice(LogSlice, frozen=True, tag="range"):
    """The rows ``start`` to ``end`` (exclusive) of a partition: each position has one row."""

    @property
    def rows(self) -> int:
        """One row per position."""
        return self.end - self.start

    def follows(self, last: Self | None) -> bool:
        """Whether it starts where the last one ended; the first one starts at 0."""
        return self.start == (0 if last is None else last.end)


class OffsetSlice(SourceSlice, frozen=True, tag="offsets"):
    """The rows between two offsets of a Python data source, each as JSON text.

    The step asks for their partitions when it runs: the journal must not hold code.
    """

    start: str
    end: str


Slice: TypeAlias = FileSlice | LogSlice | RangeSlice | OffsetSlice
"""A slice in a plan; the tag makes it decodable."""
