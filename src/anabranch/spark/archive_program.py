"""The pipeline whose JVM writes the archive of Java classes: it uses what most pipelines use.

JSON and Parquet, expressions in SQL, both kinds of state, an exchange, another number of workers
and a query, each once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anabranch as ab

ROWS = 50
# The program is short: compiling it for a long run would take most of its time.
_SHORT_RUN = {"spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def _add(key: object, row: object, total: int | None) -> tuple[tuple[int], int]:
    new = (total or 0) + row.value  # type: ignore[attr-defined]  # a row has its columns
    return (new,), new


def main(base: Path) -> None:
    """Run it in a directory."""
    (base / "in").mkdir()
    for number in range(3):
        lines = (f'{{"name": "n{row % 7}", "value": {row}}}\n' for row in range(ROWS))
        (base / "in" / f"{number}.json").write_text("".join(lines), encoding="utf-8")
    flow = ab.Dataflow("archive")
    source = ab.FileSource(
        base / "in", "json", "name string, value bigint", watch=False, max_files_per_step=1
    )
    region = flow.source("rows", source).where("value >= 0").key_distribute("by-name", "name")
    region.aggregate("counted", n="count(*)", total="sum(value)").sink(
        "out-counted", ab.FileSink(base / "counted", "parquet")
    )
    region.stateful_map("added", _add, state="total bigint", output="total bigint").sink(
        "out-added", ab.FileSink(base / "added", "json")
    )
    pipeline = ab.run(
        flow, directory=base / "state", workers=2, master="local[2]", spark_conf=_SHORT_RUN
    )
    pipeline.wait()
    pipeline.query("select name, total from counted order by name")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
