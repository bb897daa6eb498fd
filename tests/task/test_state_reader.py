"""Committed state, read from the journal and the runs, at the last step and at older ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import (
    MissingRun,
    NameTaken,
    NoPipeline,
    SnapshotExpired,
    UnknownOperator,
    UnknownStep,
)
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.node.export import export_parquet
from anabranch.records.bins import BinSet
from anabranch.runs import run_file
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task import state_reader
from anabranch.task.state_reader import (
    Snapshot,
    missing_or_expired,
    read_snapshot,
    read_table,
    read_view,
    steps_of,
)
from tests.node.finished import finished
from tests.node.shop import BINS, PAGES, Story, program


@pytest.fixture(autouse=True)
def _nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is opened anew, as in another process."""
    monkeypatch.setattr(run_file, "CACHED_RUNS", 0)


def shown(snapshot: Snapshot, operator: str, store: Path) -> list[dict[str, Any]]:
    view = snapshot.view(operator)
    batches = list(read_view(view, store, BinSet.every(view.bins)))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=view.schema()).to_pylist()
    return rows


def test_every_step_in_the_journal_is_seen_as_it_was(tmp_path: Path) -> None:
    finished(tmp_path)
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    for step in (1, 2, 3, 4):
        story = Story(PAGES[:step])
        snapshot = read_snapshot(tmp_path, step)
        assert snapshot.step == step
        seen = {r["customer"]: json.loads(r["state"]) for r in shown(snapshot, "seen", tmp_path)}
        assert seen == story.seen
        times = {r["times"]: (r["n"], r["last"]) for r in shown(snapshot, "times", tmp_path)}
        assert times == story.counts


def test_the_last_step_is_read_unless_told(tmp_path: Path) -> None:
    found = finished(tmp_path)
    assert read_snapshot(tmp_path) == read_snapshot(tmp_path, 4) == found


def test_rows_name_their_bin_and_its_worker(tmp_path: Path) -> None:
    found = finished(tmp_path, workers=3)
    snapshot = read_snapshot(tmp_path)
    by_bin = snapshot.workers["by-customer"]
    assert set(by_bin) == {0, 1, 2}
    rows = shown(snapshot, "seen", tmp_path)
    assert all(row["_worker"] == by_bin[row["_bin"]] for row in rows)
    live = next(s.live for s in found.states if s.operator == "seen")
    counted = [sum(row["_bin"] == number for row in rows) for number in range(BINS)]
    assert counted == list(live)


def test_ranges_of_bins_are_disjoint_parts_of_the_whole(tmp_path: Path) -> None:
    finished(tmp_path)
    snapshot = read_snapshot(tmp_path)
    view = snapshot.view("seen")
    parts = [BinSet.of([0, 3]), BinSet.of([1, 2, 4]), BinSet.of([5, 6, 7])]
    rows = [
        row
        for part in parts
        for batch in read_view(view, tmp_path, part)
        for row in batch.to_pylist()
    ]
    assert rows
    assert sorted(rows, key=repr) == sorted(shown(snapshot, "seen", tmp_path), key=repr)


def test_little_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path)
    snapshot = read_snapshot(tmp_path)
    view = snapshot.view("seen")
    whole = shown(snapshot, "seen", tmp_path)
    monkeypatch.setattr(state_reader, "PART_BYTES", 1)
    batches = list(read_view(view, tmp_path, BinSet.every(BINS)))
    # With room for one bin only, every batch is one bin.
    assert len(batches) == len({row["_bin"] for row in whole})
    assert [row for batch in batches for row in batch.to_pylist()] == whole


def test_names_of_ours_give_way_to_the_users(tmp_path: Path) -> None:
    flow = Dataflow("names")
    source = ScriptedSource("_worker bigint, Total bigint", [[(7, 1), (7, 2)], EOF])

    def add(key: Any, row: Any, total: Any) -> Any:
        return None, (row.Total + (total[0] if total else 0), 9)

    flow.source("in", source).key_distribute("r", "_worker", "Total").stateful_map(
        "sum", add, state="total bigint, _bin bigint", output="x int"
    ).sink("out", MemorySink())
    finished(tmp_path, made=program(flow))
    snapshot = read_snapshot(tmp_path)
    names = ["_worker", "Total", "state_total", "_bin", "_worker_", "_bin_"]
    assert snapshot.view("sum").schema().names == names
    rows = shown(snapshot, "sum", tmp_path)
    assert sorted((r["_worker"], r["Total"], r["state_total"], r["_bin"]) for r in rows) == [
        (7, 1, 1, 9),
        (7, 2, 2, 9),
    ]
    assert {r["_worker_"] for r in rows} <= {0, 1}


def test_a_table_has_the_users_columns_also_when_it_is_empty(tmp_path: Path) -> None:
    finished(tmp_path, [])
    journal = Journal(FileDirectory(tmp_path / "journal"))
    assert journal.commits() == ()
    assert read_snapshot(tmp_path).operators == []
    found = finished(tmp_path / "other", [[("ann", 1)], [("ann", -1)]])
    table = read_table(found.view("seen"), tmp_path / "other")
    assert (table.schema.names, table.num_rows) == (["customer", "state"], 0)


def test_a_removed_file_is_an_expired_snapshot_unless_the_last_step_needs_it(
    tmp_path: Path,
) -> None:
    found = finished(tmp_path)
    old, last = read_snapshot(tmp_path, 1), found
    gone = old.view("times").runs[0].run.name
    assert not last.lists(gone)
    os.unlink(tmp_path / gone)
    run_file.forget_runs()
    with pytest.raises(SnapshotExpired, match="has been removed") as raised:
        shown(old, "times", tmp_path)
    assert raised.value.where == gone
    assert missing_or_expired(raised.value, last) is raised.value
    lost = last.view("times").runs[0].run.name
    os.unlink(tmp_path / lost)
    with pytest.raises(SnapshotExpired) as again:
        read_table(last.view("times"), tmp_path)
    assert isinstance(missing_or_expired(again.value, last), MissingRun)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoPipeline):
        read_snapshot(tmp_path)
    finished(tmp_path)
    with pytest.raises(UnknownStep, match="has the steps 1 to 4"):
        read_snapshot(tmp_path, 5)
    Journal(FileDirectory(tmp_path / "journal")).trim(3)
    with pytest.raises(SnapshotExpired, match="has the steps 3 to 4"):
        read_snapshot(tmp_path, 2)
    with pytest.raises(UnknownOperator, match="There are: seen, times"):
        read_snapshot(tmp_path).view("Seen")


def test_an_export_is_what_was_read(tmp_path: Path) -> None:
    store = tmp_path / "state"
    finished(store)
    output = tmp_path / "seen.parquet"
    snapshot = read_snapshot(store, 3)
    done = export_parquet(snapshot, "seen", store, output)
    table = pq.read_table(output)
    assert (done.step, done.rows, done.bytes) == (3, table.num_rows, output.stat().st_size)
    assert table.schema == snapshot.view("seen").schema()
    assert table.to_pylist() == shown(snapshot, "seen", store)
    assert {r["customer"]: json.loads(r["state"]) for r in table.to_pylist()} == Story(
        PAGES[:3]
    ).seen


def test_an_export_never_replaces_a_file_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    store = tmp_path / "state"
    finished(store)
    output = tmp_path / "out" / "seen.parquet"
    output.parent.mkdir()
    output.write_text("mine")
    with pytest.raises(NameTaken):
        export_parquet(read_snapshot(store), "seen", store, output)
    assert output.read_text() == "mine"
    snapshot = read_snapshot(store)
    os.unlink(store / snapshot.view("seen").runs[0].run.name)
    with pytest.raises(SnapshotExpired):
        export_parquet(snapshot, "seen", store, output.with_name("other.parquet"))
    assert os.listdir(output.parent) == ["seen.parquet"]
