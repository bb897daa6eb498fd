"""The memory sink: each step once, whichever copy of the sink is asked."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import CorruptStaged, TargetTaken
from anabranch.protocol.sinks import Sink, SinkContext, StagedStep
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.staging import RowsToStage, stage


def staged(store: Path, sink: Sink, name: str, table: pa.Table) -> StagedFile:
    return stage(store, [RowsToStage(name, "out", sink, table)])[0]


def test_rows_come_back_in_step_order_each_step_once(tmp_path: Path) -> None:
    sink = MemorySink()
    publisher = sink.open(SinkContext(tmp_path, "p", "out"))
    one = staged(tmp_path, sink, "1", pa.table({"a": [1, 2]}))
    two = [staged(tmp_path, sink, f"2{i}", pa.table({"a": [i]})) for i in (3, 4)]
    publisher.publish(StagedStep(0, 2, tuple(two)))
    publisher.publish(StagedStep(0, 1, (one,)))
    publisher.publish(StagedStep(0, 2, tuple(two)))
    assert sink.rows() == [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]
    assert {step: table["a"].to_pylist() for step, table in sink.steps().items()} == {
        1: [1, 2],
        2: [3, 4],
    }
    assert list(sink.steps()) == [1, 2]


def test_a_pickled_copy_encodes_and_leads_to_the_same_rows(tmp_path: Path) -> None:
    sink = MemorySink()
    copy = pickle.loads(pickle.dumps(sink))
    assert copy == sink
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 123456, dt.UTC)
    table = pa.table({"t": pa.array([at], pa.timestamp("us", tz="UTC")), "m": pa.array(
        [[("k", 1)]], pa.map_(pa.string(), pa.int64()))})  # fmt: skip
    file = staged(tmp_path, copy, "1", table)
    sink.open(SinkContext(tmp_path, "p", "out")).publish(StagedStep(0, 1, (file,)))
    assert copy.rows() == sink.rows() == [{"t": at, "m": {"k": 1}}]
    assert MemorySink().rows() == []


def test_rows_survive_the_removal_of_the_staged_file_and_a_restart(tmp_path: Path) -> None:
    sink = MemorySink()
    context = SinkContext(tmp_path, "p", "out")
    file = staged(tmp_path, sink, "1", pa.table({"a": ["x"]}))
    sink.open(context).publish(StagedStep(0, 1, (file,)))
    (tmp_path / "1").write_bytes(b"")
    (tmp_path / "1").unlink()
    sink.open(context).publish(StagedStep(0, 1, (file,)))
    assert sink.rows() == [{"a": "x"}]


def test_a_step_with_a_bad_file_publishes_nothing(tmp_path: Path) -> None:
    sink = MemorySink()
    publisher = sink.open(SinkContext(tmp_path, "p", "out"))
    files = [staged(tmp_path, sink, str(i), pa.table({"a": [i]})) for i in (1, 2)]
    whole = (tmp_path / "2").read_bytes()
    (tmp_path / "2").write_bytes(whole[:-1])
    with pytest.raises(CorruptStaged):
        publisher.publish(StagedStep(0, 1, tuple(files)))
    assert sink.rows() == []
    (tmp_path / "2").write_bytes(whole)
    publisher.publish(StagedStep(0, 1, tuple(files)))
    assert sink.rows() == [{"a": 1}, {"a": 2}]


def test_another_pipeline_or_operator_needs_a_sink_of_its_own(tmp_path: Path) -> None:
    sink = MemorySink()
    sink.open(SinkContext(tmp_path, "p", "out"))
    for other in (SinkContext(tmp_path, "q", "out"), SinkContext(tmp_path, "p", "out2")):
        with pytest.raises(TargetTaken, match=r"clear\(\)"):
            sink.open(other)
    sink.clear()
    sink.open(SinkContext(tmp_path, "q", "out"))


def test_it_is_a_sink() -> None:
    assert isinstance(MemorySink(), Sink)
