"""What publishing needs of Spark, without it: rows of staged files, and files that it writes.

Written are JSON lines, whatever the format is called: only what happens to the files matters.
Partition columns are not made into directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.protocol.sinks import SparkFormat
from anabranch.sinks.json_lines import encode_json_lines
from anabranch.store.disk import NEW, disk


@dataclass(frozen=True, slots=True)
class PlainFrame:
    """The rows of a step, as far as a callback that runs without Spark may ask for them."""

    table: pa.Table

    def toArrow(self) -> pa.Table:
        """The rows as a table."""
        return self.table

    def collect(self) -> list[tuple[Any, ...]]:
        """The rows as tuples."""
        return [tuple(row.values()) for row in self.table.to_pylist()]


class PlainFrames:
    """``Frames`` without Spark. Files are written by way of the disk, and not synced."""

    def check(self, form: SparkFormat, schema: pa.Schema, scratch: Path) -> None:
        """Take every format."""

    def write(
        self, form: SparkFormat, files: Sequence[Path], schema: pa.Schema, directory: Path
    ) -> None:
        """Write a file for each that was staged."""
        disk().mkdir(directory)
        for number, path in enumerate(files):
            data = memoryview(encode_json_lines(self.frame([path], schema).table))
            handle = disk().open(directory / f"part-{number:05d}.{form.name}", NEW)
            try:
                while data.nbytes:
                    data = data[disk().write(handle, data) :]
            finally:
                disk().close(handle)

    def frame(self, files: Sequence[Path], schema: pa.Schema) -> PlainFrame:
        """The rows of files together."""
        return PlainFrame(pa.concat_tables([pq.read_table(path, schema=schema) for path in files]))


class Recorder:
    """A callback that keeps what it is given. A step that it is given again must be the same.

    >>> seen = Recorder()
    >>> seen(PlainFrame(pa.table({"n": [1, 2]})), 7)
    >>> seen.steps()
    {7: [(1,), (2,)]}
    """

    def __init__(self) -> None:
        """Nothing was given yet."""
        self._steps: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, frame: PlainFrame, step: int) -> None:
        """Take a step."""
        rows = frame.collect()
        known = self._steps.setdefault(step, rows)
        assert sorted(known) == sorted(rows), f"R6: step {step} is given again with other rows"

    def steps(self) -> dict[int, list[tuple[Any, ...]]]:
        """The rows of each step."""
        return dict(self._steps)

    def clear(self) -> None:
        """Forget everything: another schedule begins."""
        self._steps.clear()
