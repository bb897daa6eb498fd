"""Staged files: what is written is what a commit can vouch for."""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from anabranch.errors import CorruptStaged, NameTaken, StoreUnavailable
from anabranch.protocol.sinks import Sink
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.staging import RowsToStage, read_staged, stage
from anabranch.store import disk
from anabranch.store.files import ensure_directory

TABLE = pa.table({"a": [1, 2, 3]})


def staged(store: Path, name: str = "staged/one.json") -> StagedFile:
    (file,) = stage(store, [RowsToStage(name, "out", FileSink("o", "json"), TABLE)])
    return file


def test_a_staged_file_is_described_exactly(tmp_path: Path) -> None:
    data = b'{"a":1}\n{"a":2}\n{"a":3}\n'
    assert staged(tmp_path) == StagedFile(
        name="staged/one.json",
        sink="out",
        rows=3,
        bytes=len(data),
        checksum=xxhash.xxh3_64_hexdigest(data),
    )
    assert (tmp_path / "staged/one.json").read_bytes() == data


def test_several_sinks_are_staged_in_order_with_one_sync_per_file_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_directory(tmp_path / "staged")
    synced, fsync = [], os.fsync

    def noting(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    sinks: list[Sink] = [FileSink("o"), MemorySink(), FileSink("o", "json")]
    rows = [
        RowsToStage(f"staged/{i}.{sink.stage_format}", f"s{i}", sink, TABLE)
        for i, sink in enumerate(sinks)
    ]
    files = stage(tmp_path, rows)
    assert [file.name for file in files] == ["staged/0.parquet", "staged/1.arrow", "staged/2.json"]
    assert [file.sink for file in files] == ["s0", "s1", "s2"]
    assert sorted(synced) == ["0.parquet", "1.arrow", "2.json", "staged"]
    assert pq.read_table(tmp_path / "staged/0.parquet").equals(TABLE)


@pytest.mark.parametrize("threads", range(4))
def test_no_file_is_synced_twice_where_no_more_threads_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """As on a machine under load; the pool has queued what it could not start a thread for."""
    ensure_directory(tmp_path / "staged")
    synced, fsync, start, left = [], os.fsync, threading.Thread.start, [threads]

    def noting(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def scarce(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(threading.Thread, "start", scarce)
    disk._pool.cache_clear()
    sink = FileSink("o", "json")
    stage(tmp_path, [RowsToStage(f"staged/{i}.json", "out", sink, TABLE) for i in range(3)])
    disk._pool().shutdown()
    disk._pool.cache_clear()
    assert sorted(synced) == ["0.json", "1.json", "2.json", "staged"]


def test_a_store_that_vanished_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        staged(tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_staged_once(tmp_path: Path) -> None:
    staged(tmp_path)
    with pytest.raises(NameTaken):
        staged(tmp_path)


def test_bytes_are_given_back_also_of_an_empty_file(tmp_path: Path) -> None:
    file = staged(tmp_path)
    assert read_staged(tmp_path, file).to_pybytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n'
    empty = RowsToStage("staged/empty.json", "out", FileSink("o", "json"), TABLE[:0])
    (nothing,) = stage(tmp_path, [empty])
    assert (nothing.bytes, nothing.rows, nothing.checksum) == (0, 0, "2d06800538d394c2")
    assert read_staged(tmp_path, nothing).to_pybytes() == b""


def test_what_an_earlier_version_staged_with_a_crc_is_read(tmp_path: Path) -> None:
    file = staged(tmp_path)
    data = read_staged(tmp_path, file)
    earlier = msgspec.structs.replace(file, checksum=f"{zlib.crc32(data):08x}")
    assert read_staged(tmp_path, earlier) == data
    with pytest.raises(CorruptStaged):
        read_staged(tmp_path, msgspec.structs.replace(file, checksum=f"{zlib.crc32(b'x'):08x}"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = staged(tmp_path)
    (tmp_path / file.name).unlink()
    with pytest.raises(CorruptStaged, match=f"is missing.*{tmp_path / file.name}"):
        read_staged(tmp_path, file)


def test_every_truncation_and_every_flipped_byte_is_found(tmp_path: Path) -> None:
    file = staged(tmp_path)
    path = tmp_path / file.name
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place])
        with pytest.raises(CorruptStaged, match=f"has {place} bytes instead of {len(whole)}"):
            read_staged(tmp_path, file)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        with pytest.raises(CorruptStaged, match="another content"):
            read_staged(tmp_path, file)
