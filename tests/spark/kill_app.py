"""The pipeline that the kill tests kill: two regions, both sensitive to order, two sinks.

With a file ``BASE/transforms`` Spark code stands before each of the regions, which changes nothing
but where the rows are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import anabranch as ab
from tests.spark import killable

MODULUS = 2**61 - 1


def chain(key: Any, row: Any, state: int | None) -> tuple[Any, int]:
    """Mixes every value into the state: another order gives another state."""
    new = ((state or 7) * 31 + row.value + 1) % MODULUS
    if row.value % 5 == 0:
        return None, new
    if row.value % 5 == 1:
        return [(row.other, row.value, new), (row.other + 1, row.value, new)], new
    return (row.other, row.value, new), new


def second(key: Any, row: Any, state: Any) -> tuple[Any, Any]:
    """Counts and mixes: the count shows the place of each row in its key's order."""
    count, mixed = (0, 3) if state is None else state
    count, mixed = count + 1, (mixed * 131 + row.mixed) % MODULUS
    return (key.other, count, mixed), (count, mixed)


def spread(df: DataFrame) -> DataFrame:
    """The same rows elsewhere, joined with a table that adds nothing."""
    table = df.sparkSession.createDataFrame([(n,) for n in range(1000)], "value bigint")
    return df.repartition(3).join(table, "value").select("name", "other", "value", "_ord")


def keep(df: DataFrame) -> DataFrame:
    """What the SQL condition keeps."""
    return df.where("value % 7 <> 3").repartition(2)


def build(base: Path) -> ab.Dataflow:
    """The dataflow over ``base/in``."""
    flow = ab.Dataflow("kill")
    rows = flow.source(
        "rows",
        ab.FileSource(
            base / "in",
            format="json",
            schema="name string, other bigint, value bigint",
            watch=False,
            max_files_per_step=1,
        ),
    )
    transforms = (base / "transforms").exists()
    if transforms:
        rows = rows.transform("spread", spread)
    first = rows.key_distribute("by-name", "name").stateful_map(
        "chain", chain, state="mixed bigint", output="other bigint, value bigint, mixed bigint"
    )
    first.sink("out-first", ab.FileSink(base / "first", format="json"))
    kept = first.transform("keep", keep) if transforms else first.where("value % 7 <> 3")
    again = kept.key_distribute("by-other", "other")
    last = again.stateful_map(
        "second",
        second,
        state="count bigint, mixed bigint",
        output="other bigint, count bigint, mixed bigint",
    )
    last.sink("out-second", ab.FileSink(base / "second", format="parquet"))
    return flow


def ended(pipeline: ab.Pipeline) -> dict[str, Any]:
    """What is kept in the end, and how Spark was shared out."""
    states = {n: pipeline.state_table(n).to_pylist() for n in ("chain", "second")}
    return {"states": states, "weights": killable.weights("steps", "queries")}


if __name__ == "__main__":
    killable.run(build, ended, settings=ab.Settings(grace_seconds=5, query_seconds=0))
