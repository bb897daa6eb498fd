"""The pipeline that the test of the input log kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from tests.spark import killable

MODULUS = 2**61 - 1


def mix(key: Any, row: Any, state: Any) -> Any:
    """Another order of a key's rows gives another result."""
    mixed = ((state or 7) * 31 + row.n + 1) % MODULUS
    return (row.n, mixed), mixed


def build(base: Path) -> ab.Dataflow:
    """The dataflow over ``base/in``, a file per batch and a batch per step."""

    def make(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.json(str(base / "in"))

    source = ab.StructuredStreamSource(make, watch=False, max_batches_per_step=1, max_ahead=3)
    flow = ab.Dataflow("killed")
    flow.source("rows", source).key_distribute("by-k", "k").stateful_map(
        "mix", mix, state="mixed bigint", output="n bigint, mixed bigint"
    ).sink("out", ab.FileSink(base / "out", format="json"))
    return flow


if __name__ == "__main__":
    killable.run(build)
