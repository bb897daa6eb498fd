"""A program that runs a pipeline in its own process, loses the JVM, and runs it again.

Arguments: a directory; when the JVM dies: in a ``step``, or while the pipeline is ``idle``; and
Spark's settings.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import anabranch as ab

base = Path(sys.argv[1] if __name__ == "__main__" else ".")
inside, hold = str(base / "inside"), str(base / "hold")


def add(key: Any, row: Any, total: int | None) -> tuple[tuple[str, int], int]:
    if row.n == 3:
        Path(inside).touch()
        while Path(hold).exists():
            time.sleep(0.05)
    total = (total or 0) + row.n
    return (key.k, total), total


def flow(*, watch: bool) -> ab.Dataflow:
    made = ab.Dataflow("mortal")
    source = ab.FileSource(
        base / "in", "json", "k string, n bigint", watch=watch, max_files_per_step=1
    )
    keyed = made.source("in", source).key_distribute("by-k", "k")
    totals = keyed.stateful_map("add", add, state="total bigint", output="k string, total bigint")
    totals.sink("out", ab.FileSink(base / "out", "json"))
    return made


def run(conf: dict[str, str], *, watch: bool) -> ab.Pipeline:
    return ab.run(flow(watch=watch), directory=base / "state", spark_conf=conf)


def give(number: int, *rows: tuple[str, int]) -> None:
    path = base / f"{number}.json"
    path.write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows))
    path.rename(base / "in" / path.name)


def kill(pipeline: ab.Pipeline, when: str) -> None:
    """Kill the JVM in a step, or when there is nothing to do."""
    while when == "step" and not Path(inside).exists():
        time.sleep(0.05)
    while when == "idle" and pipeline.status().published < 2:
        time.sleep(0.05)
    (jvm,) = [each for each in psutil.Process().children() if each.name() == "java"]
    jvm.kill()


def main(when: str, conf: dict[str, str]) -> None:
    """Run it, lose the JVM, run it again, and print what came of it."""
    (base / "in").mkdir()
    give(1, ("a", 1), ("a", 2))
    give(2, ("b", 10))
    if when == "step":
        Path(hold).touch()
        give(3, ("a", 3), ("b", 20))
    pipeline = run(conf, watch=True)
    threading.Thread(target=kill, args=(pipeline, when), daemon=True).start()
    try:
        pipeline.wait()
    except ab.NodeError as error:
        print(type(error).__name__, error.code, error.what)
    Path(hold).unlink(missing_ok=True)
    if when == "idle":
        give(3, ("a", 3), ("b", 20))
    run(conf, watch=False).wait()
    lines = [
        line for path in (base / "out").glob("*.json") for line in path.read_text().splitlines()
    ]
    print(sorted((row["k"], row["total"]) for row in map(json.loads, lines)))


if __name__ == "__main__":
    main(sys.argv[2], json.loads(sys.argv[3]))
