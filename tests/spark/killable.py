"""What the programs have in common that tests kill: run to the end, or to a named point.

They are run as processes of their own: ``python -m tests.spark.<program> BASE [POINT:STEP]``. At
the named point a program says so in a file and waits to be killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.run import start_pipeline

ROOT = Path(__file__).parents[2]
SHORT_LIVED = {
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For a Spark that is killed after seconds: what it would compile for its rows is never used."""

SPARK = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"}


def command(program: str, base: Path, stop_at: str = "") -> list[str]:
    """How a program is started; its working directory is ``ROOT``."""
    return [sys.executable, "-m", f"tests.spark.{program}", str(base), *filter(None, [stop_at])]


def weights(*pools: str) -> dict[str, int]:
    """Pools that Spark shares itself out to, with their weights."""
    context = SparkSession.builder.getOrCreate().sparkContext._jsc.sc()
    return {name: context.getPoolForName(name).get().weight() for name in pools}


def run(
    build: Callable[[Path], ab.Dataflow],
    tell: Callable[[ab.Pipeline], dict[str, Any]] = lambda pipeline: {},
    settings: ab.Settings | None = None,
) -> None:
    """Run the dataflow over the base; what it came to is in ``result.json`` at the end."""
    base = Path(sys.argv[1])
    stop_at = sys.argv[2] if len(sys.argv) > 2 else ""

    def reached(point: str, step: int) -> None:
        if f"{point}:{step}" == stop_at:
            (base / "reached").write_text(stop_at)
            time.sleep(3600)

    pipeline = start_pipeline(
        build(base),
        base / "state",
        replace(settings or ab.Settings(), workers=2),
        bins=16,
        master="local[2]",
        spark_conf=SPARK,
        reached=reached,
    )
    status = pipeline.wait()
    (base / "result.json").write_text(json.dumps({"step": status.step, **tell(pipeline)}))
