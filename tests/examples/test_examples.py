"""The examples run as they are and print what follows from their input by hand."""

from __future__ import annotations

import contextlib
import json
import runpy
import shutil
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import SnapshotExpired
from anabranch.journal.entry_names import PlanName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.records.bins import BinSet
from anabranch.records.plan import decode_plan
from anabranch.rescale.step_moves import moves_of
from anabranch.task.state_reader import read_view, snapshot_of
from tests.spark.running import commits

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.spark


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    """A copy of the examples, to run in: they write beside themselves."""
    for name in ("in", "logs", "text"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str) -> dict[str, Any]:
    """Run an example; gives the names that it has made."""
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


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


def lines(directory: Path) -> dict[int, list[dict[str, Any]]]:
    """The published rows of each step, in no order."""
    found: dict[int, list[dict[str, Any]]] = {}
    for file in sorted(directory.glob("step-*.json")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found.setdefault(int(file.name.split("-")[1]), []).extend(rows)
    return found


def columns(given: dict[str, Any]) -> list[dict[str, Any]]:
    """What a generator gave, as rows."""
    return [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]


def sessions_of(times: list[datetime]) -> list[list[datetime]]:
    """Cut where half an hour or more lies between two clicks."""
    found = [[times[0]]]
    for before, after in pairwise(times):
        if (after - before).total_seconds() >= 1800:
            found.append([])
        found[-1].append(after)
    return found


def test_sessions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("sessions.py")
    clicks = columns(made["clicks"](0, 0, 60))
    wanted = []
    for user in ("ada", "bob", "cyd"):
        own = [click for click in clicks if click["user"] == user]
        for session in sessions_of([click["at"] for click in own]):
            (last,) = (click["page"] for click in own if click["at"] == session[-1])
            wanted.append((user, session[0], session[-1], len(session), last))
    rows = json_rows(here / "out/sessions")
    found = [
        (r["user"], at(r["first"]), at(r["last"]), r["clicks"], r["left"])
        for r in sorted(rows, key=lambda r: (r["user"], r["first"]))
    ]
    assert found == wanted
    assert [sum(row[0] == user for row in wanted) for user in ("ada", "bob", "cyd")] == [4, 3, 3]
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == printed
    assert [json.loads(line) for line in printed] == sorted(
        rows, key=lambda r: (r["user"], r["first"])
    )


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_fraud(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("fraud.py")
    seen: dict[int, list[int]] = {}
    wanted = []
    for row in columns(made["payments"](0, 0, 800)):
        before = seen.setdefault(row["card"], [])
        if len(before) >= 5 and row["amount"] * 5 > 3 * sum(before[-5:]):
            mean = sum(before[-5:]) / 5
            wanted.append((row["payment"], row["card"], row["amount"], mean))
        before.append(row["amount"])
    found = [tuple(row.values()) for row in json_rows(here / "out/fraud")]
    assert sorted(found) == wanted
    assert len(wanted) > 3
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "4 steps"
    assert len(printed) == 1 + len(wanted)


def test_top_n(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("top_n.py")
    sold: Counter[tuple[str, str]] = Counter()
    best: dict[str, list[str]] = {}
    changes: dict[int, set[tuple[str, str, str]]] = {}
    for step in (1, 2, 3, 4):
        for row in columns(made["sales"](0, (step - 1) * 400, step * 400)):
            sold[row["category"], row["product"]] += row["units"]
        changes[step] = set()
        for category in ("ink", "paper", "pens"):
            counts = [(-n, product) for (c, product), n in sold.items() if c == category]
            now = [product for _, product in sorted(counts)[:3]]
            before = best.get(category, [])
            changes[step] |= {(category, "came", p) for p in now if p not in before}
            changes[step] |= {(category, "went", p) for p in before if p not in now}
            best[category] = now
    told = lines(here / "out/ranking-changes")
    assert {step: {tuple(row.values()) for row in rows} for step, rows in told.items()} == {
        step: rows for step, rows in changes.items() if rows
    }
    assert sum(map(len, changes.values())) > 9  # more than the first three of each
    assert sorted(tuple(row.values()) for row in json_rows(here / "out/ranking")) == [
        (category, place, product, sold[category, product])
        for category, products in sorted(best.items())
        for place, product in enumerate(products, start=1)
    ]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == sum(map(len, changes.values())) + 9
    assert sum(line.startswith("step 5: ") for line in printed) == 9


def test_enrichment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("enrichment.py")
    # Order 2 and 5 wait for the price of caps until step 3; a jug never has one, so its order
    # comes with the end, in step 4.
    assert capsys.readouterr().out.splitlines() == [
        'step 1: {"id":1,"product":"pen","cost":300}',
        'step 1: {"id":3,"product":"ink","cost":700}',
        'step 2: {"id":4,"product":"pen","cost":1750}',
        'step 3: {"id":2,"product":"cap","cost":1200}',
        'step 3: {"id":5,"product":"cap","cost":3600}',
        'step 3: {"id":6,"product":"ink","cost":1300}',
        'step 3: {"id":7,"product":"cap","cost":1200}',
        'step 3: {"id":9,"product":"pen","cost":175}',
        'step 4: {"id":8,"product":"jug"}',
    ]


@pytest.mark.parametrize("name", ["sessions.py", "enrichment.py"])
def test_a_second_run_finds_nothing_to_do(
    here: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name)
    once = capsys.readouterr().out
    run(name)
    assert capsys.readouterr().out == once


def test_moving_state(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("moving_state.py")
    assert capsys.readouterr().out.splitlines() == [
        "asked for 4 workers: {'by-user': 4}",
        "asked for 1 workers: {'by-user': 1}",
        # Half of 64 bins and of 4 partitions, then three quarters of both.
        "settled: 34 bins have moved",
        "settled: 51 bins have moved",
    ]
    status, partitions = made["status"], made["PARTITIONS"]
    expected: set[tuple[int, int]] = set()
    for partition in range(partitions):
        rows = (status.rows + partitions - 1 - partition) // partitions
        visits = made["visits"](partition, 0, rows)
        expected |= set(zip(visits["user"], visits["page"], strict=True))
    found = [(row["user"], row["page"]) for row in json_rows(here / "out/first-visits")]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert handed_over(here / "moving.state") == {b"z"}


def handed_over(directory: Path) -> set[bytes]:
    """The form of what was left in bins that a step has collected, where files are still there."""
    found: set[bytes] = set()
    journal = Journal(FileDirectory(directory / "journal"))
    for commit in commits(directory):
        plan = decode_plan(journal.read(PlanName(commit.step, commit.revision)).body)
        moved = moves_of(plan)
        moves = () if moved is None else moved.collect
        leaving = BinSet.of(move.bin for move in moves if move.region == "by-user")
        seen = snapshot_of(commit.step, commit.clock_ns, 64, commit.states, commit.placement)
        with contextlib.suppress(SnapshotExpired):
            for batch in read_view(seen.view("first"), directory, leaving):
                found |= {saved[:1] for saved in batch.column("saved").to_pylist()}
    return found
