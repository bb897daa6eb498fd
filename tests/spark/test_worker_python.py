"""A session of the user's whose Python workers cannot run our tasks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import anabranch as ab

settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
flow = ab.Dataflow("letters")
source = ab.ScriptedSource("letter string", [[("a",), ("b",), ("a",)], ab.EOF])
counts = flow.source("in", source).key_distribute("by-letter", "letter")
counts.aggregate("counts", n="count(*)").sink("out", ab.MemorySink())
try:
    pipeline = ab.run(flow, directory=sys.argv[1], workers=1, bins=4)
    pipeline.wait()
    print(sorted(row["n"] for row in pipeline.state_table("counts").to_pylist()))
except ab.AnabranchError as error:
    print(error)
"""


def printed(directory: Path, python: str) -> str:
    """What the program says if Spark's Python workers run an interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)],
        env={**os.environ, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter that has nothing but the standard library."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_the_message_names_the_interpreter_and_the_remedy_works(
    tmp_path: Path, bare_python: str
) -> None:
    said = printed(tmp_path / "state", bare_python)
    assert said.startswith("[spark.unavailable] ")
    assert f"run {bare_python}, which does not have anabranch, pyarrow, numpy, msgspec." in said
    remedy = re.search(r"PYSPARK_PYTHON=(\S+) before", said)
    assert remedy is not None
    assert printed(tmp_path / "state", remedy[1]) == "[1, 2]\n"
