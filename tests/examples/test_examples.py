"""The examples run as they are and print what follows from their input by hand."""

from __future__ import annotations

import json
import runpy
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.spark


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    """A copy of the examples, to run in: they write beside themselves."""
    for name in ("in", "logs", "text"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def json_rows(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("step-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_orders(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("orders.py")
    assert capsys.readouterr().out.splitlines() == [
        "{'customer': 'ada', 'total': 20.0}",
        "{'customer': 'bob', 'total': 7.25}",
        "{'customer': 'cyd', 'total': 100.0}",
    ]
    totals = [(row["customer"], row["total"]) for row in json_rows(here / "out/totals")]
    assert sorted(totals) == [
        ("ada", 12.5),
        ("ada", 20.0),
        ("bob", 3.0),
        ("bob", 7.25),
        ("cyd", 100.0),
    ]


def test_orders_go_on_where_they_stopped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("orders.py")
    run("orders.py")
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == printed[3:]
    assert len(json_rows(here / "out/totals")) == 5


def test_word_count(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("word_count.py")
    assert capsys.readouterr().out.splitlines() == [
        "the    5",
        "river  4",
        "and    2",
        "bed    2",
        "another 1",
    ]
    text = (here / "text/river.txt").read_text().lower()
    words = Counter("".join(c if c.isalpha() else " " for c in text).split())
    files = (here / "out/word-counts").glob("step-*.parquet")
    written = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert {row["word"]: row["n"] for row in written} == words


def test_rekeying(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("rekeying.py")
    # 200 readings a sensor in periods of 50, each with one rise: 4 alarms for each sensor that
    # reaches 25 degrees, which are 5 to 7 in room 1 and 8 to 11 in room 2.
    assert capsys.readouterr().out.splitlines() == [
        "4 steps",
        "{'room': 1, 'alarms': 12, 'hottest': 27.0}",
        "{'room': 2, 'alarms': 16, 'hottest': 31.0}",
    ]
    rises = Counter(row["sensor"] for row in json_rows(here / "out/alarms") if row["warm"])
    assert rises == dict.fromkeys(range(5, 12), 4)


def test_custom_source(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("custom_source.py")
    with open(here / "logs/web-2.log", "a") as log:
        log.write("200 /new\n599 /half a li")
    run("custom_source.py")
    # Counted by hand; the line without an end is not read.
    assert capsys.readouterr().out.splitlines() == [
        "{'server': 'web-1', 'requests': 5, 'worst': 500}",
        "{'server': 'web-2', 'requests': 4, 'worst': 503}",
        "{'server': 'web-1', 'requests': 5, 'worst': 500}",
        "{'server': 'web-2', 'requests': 5, 'worst': 503}",
    ]
    rows = [(row["server"], row["requests"]) for row in json_rows(here / "out/requests")]
    assert sorted(rows) == [("web-1", 5), ("web-2", 4), ("web-2", 5)]
