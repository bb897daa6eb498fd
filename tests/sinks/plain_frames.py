"""Stands in for Spark where what counts is what happens around it: splits rows as chance wills."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import PublishFailed
from anabranch.protocol.sinks import SparkFormat


class PlainFrames:
    """Writes ``name,value`` lines, as Spark would name the files; fails when it is told to."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.failures = 0
        self.written = 0

    def check(self, form: SparkFormat, schema: pa.Schema, scratch: Path) -> None:
        scratch.mkdir()
        (scratch / "_SUCCESS").touch()

    def write(
        self, form: SparkFormat, files: Sequence[Path], schema: pa.Schema, directory: Path
    ) -> None:
        self.written += 1
        directory.mkdir()
        rows = self.frame(files, schema).to_pylist()
        self.chance.shuffle(rows)
        for row in rows:
            partitions = [f"{name}={row.pop(name)}" for name in form.partition_by]
            parent = directory.joinpath(*partitions)
            parent.mkdir(parents=True, exist_ok=True)
            name = f"part-{self.chance.randrange(2):05d}-{uuid.uuid4()}-c000.csv"
            (parent / name).write_text(",".join(map(str, row.values())) + "\n")
            (parent / f".{name}.crc").write_bytes(b"crc")
            if self.failures:
                self.failures -= 1
                raise PublishFailed("the job failed")
        (directory / "_SUCCESS").touch()

    def frame(self, files: Sequence[Path], schema: pa.Schema) -> pa.Table:
        return pa.concat_tables([pq.read_table(path, schema=schema) for path in files])
