"""A step that runs out of memory: its error names operator, column and sizes, and helps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame

import anabranch as ab
from anabranch.dataflow.stream import Stream
from anabranch.errors import StepFailed
from tests.spark.running import failure

MIB = 1 << 20
LARGE = {"k": "x" * (2 * MIB), "v": 1}
LARGER = {"k": "y" * (3 * MIB), "v": 1}
SMALL = {"k": "z", "v": 1}


def write(directory: Path, *rows: dict[str, Any]) -> None:
    directory.mkdir()
    for number, row in enumerate(rows):
        (directory / f"{number}.json").write_text(json.dumps(row) + "\n")


def flow_of(directory: Path, make: Callable[[Stream], Stream]) -> ab.Dataflow:
    flow = ab.Dataflow("large")
    source = ab.FileSource(directory, "json", "k string, v bigint", watch=False)
    make(flow.source("rows", source)).aggregate("n", n="count(*)").sink("out", ab.MemorySink())
    return flow


@pytest.fixture
def out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job of the first step run out of memory, as Spark says it."""
    collect, steps = DataFrame.collect, iter([True])

    def once(self: DataFrame) -> Any:
        if next(steps, False):
            text = "Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space"
            raise PySparkException(text)
        return collect(self)

    monkeypatch.setattr(DataFrame, "collect", once)


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "out_of_memory")
@pytest.mark.parametrize(
    ("make", "name", "times"),
    [
        (lambda rows: rows.key_distribute("by-k", "k"), "k", 1),
        (lambda rows: rows.key_distribute("by-k", twice="concat(k, k)"), "twice", 2),
        (lambda rows: rows.select("k as other").key_distribute("by-k", "other"), "other", 1),
    ],
)
def test_the_operator_the_key_column_and_the_sizes_are_named(
    tmp_path: Path, make: Callable[[Stream], Stream], name: str, times: int
) -> None:
    write(tmp_path / "in", LARGE, LARGER, SMALL)
    error = failure(flow_of(tmp_path / "in", make), tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert error.where == 'distribution "by-k"'
    sizes = f"up to {times * 3 * MIB:,} bytes, {times * (5 * MIB + 1):,} bytes together"
    assert error.what == (
        f"Spark ran out of memory in the step: key column {name!r} has values of {sizes}"
    )
    assert error.do is not None
    assert f"sha2({name}, 256)" in error.do


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "out_of_memory")
def test_a_large_value_is_named_if_no_key_is_large(tmp_path: Path) -> None:
    write(tmp_path / "in", LARGE, SMALL)
    flow = flow_of(tmp_path / "in", lambda rows: rows.key_distribute("by-v", "v"))
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert error.where == 'source "rows"'
    assert f"column 'k' has values of up to {2 * MIB:,} bytes" in error.what
    assert error.do is not None
    assert "max_bytes_per_step" in error.do


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "out_of_memory")
def test_nothing_is_named_that_is_not_large(tmp_path: Path) -> None:
    write(tmp_path / "in", SMALL)
    flow = flow_of(tmp_path / "in", lambda rows: rows.key_distribute("by-k", "k"))
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert (error.what, error.where) == ("Spark ran out of memory in the step", None)
    assert error.do is not None
    assert "spark.driver.memory=" in error.do


PROGRAM = """
import anabranch as ab

def add(key, row, total):
    return None, (total or 0) + row.n

flow = ab.Dataflow("large")
source = ab.FileSource("in", "json", "k string, n bigint", {"maxStringLen": 100000000}, watch=False)
rows = flow.source("rows", source).key_distribute("by-k", "k")
totals = rows.stateful_map("total", add, state="total bigint", output="n bigint")
totals.sink("out", ab.MemorySink())
"""


def run(directory: Path, memory: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch.cli.app", "run", "program.py:flow"]
    command += ["--directory", "state", "--master", "local[2]", "--node", "inline"]
    command += ["--conf", f"spark.driver.memory={memory}"]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=250, check=False
    )


@pytest.mark.spark
def test_four_keys_of_sixty_megabytes_run_with_the_memory_that_the_error_asks_for(
    tmp_path: Path,
) -> None:
    size = 60_000_000
    write(tmp_path / "in", *({"k": letter * size, "n": 1} for letter in "abcd"))
    (tmp_path / "program.py").write_text(PROGRAM)
    failed = run(tmp_path, "1g")
    assert failed.returncode != 0, "they fit into less memory now: let the test use larger ones"
    said = " ".join(failed.stderr.split())
    assert "key column 'k' has values of up to 60,000,000 bytes" in said
    assert "240,000,000 bytes together" in said
    assert 'distribution "by-k"' in said
    asked = re.search(r"--conf spark\.driver\.memory=(\d+g)", said)
    assert asked is not None, failed.stderr
    again = run(tmp_path, asked[1])
    assert again.returncode == 0, again.stderr
