"""Slices: names of input, never input itself. Plans hold them, tasks read them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class FileSlice(msgspec.Struct, frozen=True, tag="file"):
    """A whole file, as it was when it was planned.

    `path` is absolute. Spark takes patterns for paths: give it `spark_path(path)`.
    """

    path: str
    size: int
    mtime_ns: int


class RangeSlice(msgspec.Struct, frozen=True, tag="range"):
    """The rows `start` to `end` (exclusive) of one partition. Row i of it has position start+i."""

    partition: int
    start: int
    end: int


class OffsetSlice(msgspec.Struct, frozen=True, tag="offsets"):
    """All rows between two offsets of a Python data source, each as JSON text.

    Into which partitions they fall is asked when the step runs: what stands in the journal must
    not be code.
    """

    start: str
    end: str


#: What a plan says about input. The tag makes it decodable from the journal.
Slice: TypeAlias = FileSlice | RangeSlice | OffsetSlice
