"""The pipeline that the kill tests kill: two regions, both sensitive to order, two sinks.

Run as a process of its own: ``python kill_app.py BASE [POINT:STEP]``. At the named point it says so
in a file and waits to be killed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import anabranch as ab

MODULUS = 2**61 - 1
SPARK = {
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
}


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
    first = rows.key_distribute("by-name", "name").stateful_map(
        "chain", chain, state="mixed bigint", output="other bigint, value bigint, mixed bigint"
    )
    first.sink("out-first", ab.FileSink(base / "first", format="json"))
    again = first.where("value % 7 <> 3").key_distribute("by-other", "other")
    last = again.stateful_map(
        "second",
        second,
        state="count bigint, mixed bigint",
        output="other bigint, count bigint, mixed bigint",
    )
    last.sink("out-second", ab.FileSink(base / "second", format="parquet"))
    return flow


def main() -> None:
    """Run to the end, or to the point where the test kills this process."""
    base = Path(sys.argv[1])
    stop_at = sys.argv[2] if len(sys.argv) > 2 else ""

    def reached(point: str, step: int) -> None:
        if f"{point}:{step}" == stop_at:
            (base / "reached").write_text(stop_at)
            time.sleep(3600)

    pipeline = ab.run(
        build(base),
        directory=base / "state",
        workers=2,
        bins=16,
        master="local[2]",
        spark_conf=SPARK,
        settings=ab.Settings(grace_seconds=5, query_seconds=0),
        reached=reached,
    )
    status = pipeline.wait()
    states = {name: pipeline.state_table(name).to_pylist() for name in ("chain", "second")}
    (base / "result.json").write_text(json.dumps({"step": status.step, "states": states}))


if __name__ == "__main__":
    main()
