"""The file sink: each step once, whatever happens in between."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import (
    BuildError,
    CorruptStaged,
    DiskFull,
    FutureFormat,
    PublishFailed,
    StoreUnavailable,
    TargetTaken,
)
from anabranch.protocol.sinks import Sink, SinkContext, StagedStep, takes_back
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.file import FilePublisher, FileSink, Link
from anabranch.sinks.staging import RowsToStage, stage
from anabranch.store.disk import use_disk
from anabranch.testing.faulty_disk import Crash, FaultyDisk


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = tmp_path / "store"
    made.mkdir()
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def context(store: Path) -> SinkContext:
    return SinkContext(store, "pipeline-1", "totals")


def opened(sink: FileSink, store: Path) -> FilePublisher:
    publisher = sink.open(context(store))
    assert isinstance(publisher, FilePublisher)
    return publisher


def staged(store: Path, sink: FileSink, *values: int) -> list[StagedFile]:
    """One staged file for every value, with that value in it."""
    tables = [pa.table({"a": [value]}) for value in values]
    names = [f"staged/{value}.{sink.stage_format}" for value in values]
    rows = [
        RowsToStage(name, "totals", sink, table) for name, table in zip(names, tables, strict=True)
    ]
    return list(stage(store, rows))


def visible(out: Path) -> dict[str, bytes]:
    """What a reader that skips hidden names, as Spark does, finds."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name[0] not in "_."}


def manifest(out: Path, step: int) -> Any:
    return json.loads((out / "_manifest" / f"step-{step:012d}.json").read_bytes())


def test_published_files_and_manifest(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5, 6)
    sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    assert visible(out) == {
        "step-000000000007-0.json": b'{"a":5}\n',
        "step-000000000007-1.json": b'{"a":6}\n',
    }
    assert manifest(out, 7) == {
        "format": 1,
        "step": 7,
        "rows": 2,
        "files": [
            {
                "name": f"step-000000000007-{k}.json",
                "rows": 1,
                "bytes": 8,
                "checksum": files[k].checksum,
                "staged": files[k].name,
            }
            for k in (0, 1)
        ],
    }
    assert sorted(os.listdir(out / "_manifest")) == ["owner.json", "step-000000000007.json"]


def test_parquet_keeps_names_order_and_types(store: Path, out: Path) -> None:
    schema = pa.schema(
        {
            "z": pa.timestamp("us", tz="UTC"),
            "a b": pa.timestamp("us"),
            "é": pa.decimal128(20, 3),
            "m": pa.map_(pa.int32(), pa.list_(pa.struct({"x": pa.int8()}))),
            "bin": pa.binary(),
            "d": pa.date32(),
        }
    )
    table = pa.Table.from_pylist(
        [
            {
                "z": 1,
                "a b": 2,
                "é": 3,
                "m": [(1, [{"x": 2}, None]), (2, None)],
                "bin": b"\0",
                "d": 4,
            },
            dict.fromkeys(schema.names),
        ],
        schema=schema,
    )
    data = FileSink(out).encode(table.replace_schema_metadata({b"pandas": b"{}"}))
    file = pq.ParquetFile(pa.BufferReader(data))
    assert file.read().schema.names == schema.names
    assert file.read().to_pylist() == table.to_pylist()
    logical = {c.name: str(c.logical_type) for c in (file.schema.column(i) for i in (0, 1))}
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in logical["z"]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical["a b"]
    assert file.metadata.row_group(0).column(0).physical_type == "INT64"


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_encoding_is_deterministic(form: Any) -> None:
    table = pa.table({"a": [1, 2, None], "s": ["x", None, "y"]})
    sink = FileSink("o", form)
    copy = pickle.loads(pickle.dumps(sink))
    assert sink.encode(table).to_pybytes() == copy.encode(table).to_pybytes()


def test_a_step_is_published_once_even_if_its_files_were_removed_since(
    store: Path, out: Path
) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5, 6)
    sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    (out / "step-000000000007-0.json").unlink()
    for file in files:
        (store / file.name).unlink()
    sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    assert list(visible(out)) == ["step-000000000007-1.json"]


def test_published_files_outlive_the_staged_ones(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5)
    sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    (store / files[0].name).unlink()
    assert visible(out) == {"step-000000000007-0.json": b'{"a":5}\n'}


# ------------------------------------------------------------------------------------ crashes


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """The system calls of a process that is killed before its nth one: none works from then on."""

    CALLS = ("open", "write", "fsync", "link", "unlink", "rename", "mkdir")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lives: int) -> None:
        self.lives = lives
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.counting(getattr(os, name)))

    def counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: object, **named: object) -> object:
            self.lives -= 1
            if self.lives < 0:
                raise Killed
            return call(*arguments, **named)

        return counted


def other_disk(*_: object) -> NoReturn:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def publish_mortally(
    publisher: FilePublisher, files: list[StagedFile], copying: bool, n: int
) -> bool:
    """Publish step 7 with n system calls to live; say whether that was enough."""
    with pytest.MonkeyPatch.context() as patch:
        Mortal(patch, n)
        links: dict[bool, Link] = {True: other_disk, False: os.link}
        mine = dataclasses.replace(publisher, link=links[copying])
        try:
            mine.publish(StagedStep(0, 7, tuple(files)))
        except Killed:
            return False
        return True


@pytest.mark.parametrize("copying", [False, True], ids=["links", "copies"])
def test_r6_a_kill_at_any_system_call_and_a_repetition_give_the_step_once(
    tmp_path: Path, store: Path, copying: bool
) -> None:
    sink = FileSink("unused", "json")
    files = staged(store, sink, 5, 6, 8)
    whole = {f"step-000000000007-{k}.json": b'{"a":%d}\n' % v for k, v in enumerate((5, 6, 8))}
    manifest_name = "step-000000000007.json"
    finished = False
    lives = 0
    while not finished:
        out = tmp_path / f"out-{lives}"
        fresh = FileSink(out, "json")
        finished = publish_mortally(opened(fresh, store), files, copying, lives)
        # What can be seen is whole, and a manifest stands for all of it.
        assert visible(out).items() <= whole.items()
        if manifest_name in os.listdir(out / "_manifest"):
            assert visible(out) == whole
        # Killed again at a second place, then left in peace.
        publish_mortally(opened(fresh, store), files, copying, lives // 2)
        fresh.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
        assert visible(out) == whole
        assert manifest(out, 7)["rows"] == 3
        assert sorted(os.listdir(out / "_manifest")) == ["owner.json", manifest_name]
        assert sorted(os.listdir(out)) == sorted([*whole, "_manifest"])
        lives += 1
    assert lives > 10


def test_the_manifest_is_durable_only_after_the_files(
    store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5, 6)
    publisher = sink.open(context(store))
    synced, fsync = [], os.fsync

    def noting(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        synced.append("manifest" if name.endswith(".aside") else name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    publisher.publish(StagedStep(0, 7, tuple(files)))
    assert synced == ["out", "manifest", "_manifest"]


# ------------------------------------------------------------------------------------ errors


def test_a_damaged_staged_file_is_not_published(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5, 6)
    (store / files[1].name).write_bytes(b'{"a":7}\n')
    with pytest.raises(CorruptStaged, match="'totals'"):
        sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    assert list(visible(out)) == ["step-000000000007-0.json"]
    assert os.listdir(out / "_manifest") == ["owner.json"]
    (store / files[1].name).write_bytes(b'{"a":6}\n')
    sink.open(context(store)).publish(StagedStep(0, 7, tuple(files)))
    assert manifest(out, 7)["rows"] == 2


@pytest.mark.parametrize("copying", [False, True], ids=["links", "copies"])
def test_a_strangers_file_is_never_overwritten(store: Path, out: Path, copying: bool) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5)
    publisher = opened(sink, store)
    if copying:
        publisher = dataclasses.replace(publisher, link=other_disk)
    stranger = out / "step-000000000007-0.json"
    stranger.write_bytes(b"precious")
    with pytest.raises(PublishFailed, match=str(stranger)):
        publisher.publish(StagedStep(0, 7, tuple(files)))
    assert stranger.read_bytes() == b"precious"
    stranger.unlink()
    publisher.publish(StagedStep(0, 7, tuple(files)))
    assert stranger.read_bytes() == b'{"a":5}\n'


def test_a_step_published_by_another_history_is_told(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    publisher = sink.open(context(store))
    publisher.publish(StagedStep(0, 7, tuple(staged(store, sink, 5))))
    with pytest.raises(PublishFailed, match="set back to an older copy"):
        publisher.publish(StagedStep(0, 7, tuple(staged(store, sink, 6))))
    assert visible(out) == {"step-000000000007-0.json": b'{"a":5}\n'}


@pytest.mark.parametrize("text", [b"", b"{", b'{"format":1}'])
def test_a_damaged_manifest_is_told(store: Path, out: Path, text: bytes) -> None:
    sink = FileSink(out, "json")
    publisher = sink.open(context(store))
    path = out / "_manifest" / "step-000000000007.json"
    path.write_bytes(text)
    with pytest.raises(PublishFailed, match=str(path)):
        publisher.publish(StagedStep(0, 7, tuple(staged(store, sink, 5))))
    assert visible(out) == {}


def test_a_manifest_of_the_future_is_told(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    publisher = sink.open(context(store))
    (out / "_manifest" / "step-000000000007.json").write_bytes(b'{"format":2,"new":[]}')
    with pytest.raises(FutureFormat, match="format 2"):
        publisher.publish(StagedStep(0, 7, tuple(staged(store, sink, 5))))


def test_another_pipelines_output_is_refused(store: Path, out: Path) -> None:
    sink = FileSink(out)
    sink.open(context(store))
    sink.open(context(store))
    for other in (
        SinkContext(store, "pipeline-2", "totals"),
        SinkContext(store, "pipeline-1", "x"),
    ):
        with pytest.raises(TargetTaken, match=str(out)):
            sink.open(other)
    (out / "_manifest" / "owner.json").write_bytes(b"{}")
    with pytest.raises(TargetTaken):
        sink.open(context(store))


def test_a_path_that_cannot_be_made_is_unavailable_at_open(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(StoreUnavailable, match=str(path)):
            FileSink(path).open(context(store))


def test_a_directory_that_may_not_be_written_is_unavailable_at_open(
    store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Asked of the operating system, but root may write anywhere: the answer is given here.
    monkeypatch.setattr(os, "access", lambda path, mode: path != out)
    with pytest.raises(StoreUnavailable, match=f"'totals' may not write.*{out}"):
        FileSink(out).open(context(store))


def test_a_vanished_target_is_unavailable_and_is_not_made_again(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    publisher = sink.open(context(store))
    out.rename(out.with_name("moved"))
    with pytest.raises(StoreUnavailable, match=r"step-000000000007-0\.json"):
        publisher.publish(StagedStep(0, 7, tuple(staged(store, sink, 5))))
    assert not out.exists()
    out.with_name("moved").rename(out)
    publisher.publish(StagedStep(0, 7, tuple([StagedFile(**_fields(store, sink))])))
    assert manifest(out, 7)["rows"] == 1


def _fields(store: Path, sink: FileSink) -> dict[str, Any]:
    (file,) = staged(store, sink, 9)
    return {"name": file.name, "sink": "totals", "rows": 1, "bytes": 8, "checksum": file.checksum}


@pytest.mark.parametrize("copying", [False, True], ids=["links", "copies"])
def test_a_full_disk_is_told_and_the_repetition_completes(
    store: Path, out: Path, monkeypatch: pytest.MonkeyPatch, copying: bool
) -> None:
    sink = FileSink(out, "json")
    files = staged(store, sink, 5)

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    publisher = opened(sink, store)
    publisher = dataclasses.replace(publisher, link=other_disk if copying else full)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(DiskFull, match=r"step-000000000007-0\.json"):
            publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sorted(os.listdir(out)) == ["_manifest"]
    dataclasses.replace(publisher, link=os.link).publish(StagedStep(0, 7, tuple(files)))
    assert visible(out) == {"step-000000000007-0.json": b'{"a":5}\n'}


def test_later_steps_are_taken_back_and_published_anew(store: Path, out: Path) -> None:
    sink = FileSink(out, "json")
    assert takes_back(sink)
    publisher = opened(sink, store)
    first = staged(store, sink, 1)
    for step in (1, 2, 3):
        publisher.publish(StagedStep(0, step, tuple(first)))
    # As a publisher leaves it that was killed before its manifest.
    (out / "_manifest" / "step-000000000003.json").unlink()
    (out / "step-2.json").write_text("a stranger's")
    for _ in range(2):
        publisher.take_back(1)
        assert set(visible(out)) == {"step-000000000001-0.json", "step-2.json"}
        assert sorted(os.listdir(out / "_manifest")) == ["owner.json", "step-000000000001.json"]
    publisher.publish(StagedStep(0, 2, tuple(staged(store, sink, 7))))
    assert visible(out)["step-000000000002-0.json"] == b'{"a":7}\n'


def test_a_kill_while_taking_back_is_mended_by_the_repetition(
    store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(out, "json")
    publisher = opened(sink, store)
    for step in (1, 2, 3):
        publisher.publish(StagedStep(0, step, tuple(staged(store, sink, step))))
    remove = Path.unlink
    for lives in range(4):
        left = [lives]

        def mortal(path: Path, missing_ok: bool = False, left: list[int] = left) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            remove(path, missing_ok)

        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(Path, "unlink", mortal)
            publisher.take_back(1)
        for path in (out / "_manifest").glob("step-*"):
            named = {file["name"] for file in json.loads(path.read_bytes())["files"]}
            assert named <= set(visible(out)), "no manifest names a file that is gone"
    publisher.take_back(1)
    assert set(visible(out)) == {"step-000000000001-0.json"}


def named_and_gone(out: Path) -> set[str]:
    """The files that a manifest names and that are not there."""
    manifests = [json.loads(path.read_bytes()) for path in (out / "_manifest").glob("step-*")]
    named = {file["name"] for manifest in manifests for file in manifest["files"]}
    return named - set(visible(out))


@pytest.mark.parametrize("seed", range(12))
def test_what_was_taken_back_does_not_return_with_the_power(
    store: Path, out: Path, tmp_path: Path, seed: int
) -> None:
    """Neither after the end of it nor after a cut in the middle is a step only said to be there."""
    (tmp_path / "graves").mkdir()
    disk = FaultyDisk(tmp_path / "graves", Random(seed))
    sink = FileSink(out, "json")
    with use_disk(disk):
        publisher = opened(sink, store)
        files = {step: tuple(staged(store, sink, step)) for step in (1, 2, 3)}
        for call in itertools.count():
            for step, given in files.items():
                publisher.publish(StagedStep(0, step, given))
            disk.crash_at("", call)
            try:
                publisher.take_back(1)
            except Crash:
                disk.power_cut()
                disk.revive("")
                assert named_and_gone(out) == set()
                publisher.take_back(1)
            else:
                break
        disk.power_cut()
        disk.revive("")
    assert call > 4, "it was cut between the manifests and the files"
    assert sorted(os.listdir(out / "_manifest")) == ["owner.json", "step-000000000001.json"]
    assert set(visible(out)) == {"step-000000000001-0.json"}


def test_what_can_never_be_opened_is_refused_when_it_is_built() -> None:
    with pytest.raises(BuildError, match="local or mounted directory"):
        FileSink("s3://bucket/out")
    with pytest.raises(TypeError):
        FileSink(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FileSink(b"out")  # type: ignore[arg-type]
    for form in ("", 7):
        with pytest.raises(TypeError, match="name of a file format"):
            FileSink("out", form)  # type: ignore[arg-type]
    for columns in (("a", ""), ("a", 7)):
        with pytest.raises(TypeError, match="names of columns"):
            FileSink("out", partition_by=columns)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use path="):
        FileSink("out", "csv", {"Path": "elsewhere"})
    with pytest.raises(TypeError, match="option 'header'"):
        FileSink("out", "csv", {"header": None})


def test_a_format_that_spark_writes_needs_spark(store: Path, out: Path) -> None:
    for sink in (FileSink(out, "csv"), FileSink(out, "json", partition_by="a")):
        assert sink.stage_format == "parquet"
        with pytest.raises(BuildError, match="'totals' is written by Spark"):
            sink.open(context(store))


def test_it_is_a_sink() -> None:
    assert isinstance(FileSink("out"), Sink)
