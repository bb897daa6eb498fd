"""Values too large for a run: in files of their own, written once, kept as long as needed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptRun, MissingRun
from anabranch.records.layout import Layout
from anabranch.records.run_list import BlobInfo, RunInfo, files
from anabranch.runs import blobs, state_files
from anabranch.runs.blobs import large_rows
from anabranch.runs.changes import KeyChanges
from anabranch.runs.compaction import CompactionLimits
from tests.runs.kind_store import KindStore, Put, plain_create
from tests.runs.state_model import batch_of, hashes_of, key_schema

VALUES = pa.schema([("n", pa.int64()), ("data", pa.binary()), ("tags", pa.list_(pa.string()))])
DOCUMENTS = Layout(key_schema("int64"), VALUES, blobs=True)
MIB = 1 << 20


def listed_blobs(store: KindStore) -> set[str]:
    return {name for name in files(store.runs) if name.endswith(".blob")}


def document(size: int, number: int = 1) -> tuple[Any, ...]:
    return (number, bytes([number % 256]) * size, ["x"])


def test_rows_are_large_by_all_their_columns() -> None:
    wide = [["t" * 1000] * 600, None, ["t"]] * 2
    data = [b"d" * 500_000, b"d" * (MIB + 1), b"d"] * 2
    values = pa.record_batch([pa.array([1] * 6), pa.array(data), pa.array(wide)], schema=VALUES)
    assert large_rows(values) == [0, 1, 3, 4]
    assert large_rows(values.slice(2, 2)) == [1]
    assert large_rows(values.slice(0, 0)) == []


def test_many_small_rows_are_not_large() -> None:
    values = pa.record_batch({"data": [b"d" * 1000] * 5000})
    assert large_rows(values) == []


def test_a_large_value_is_kept_beside_the_run(tmp_path: Path) -> None:
    store = KindStore(tmp_path, DOCUMENTS)
    (result,) = store.step(
        [Put((1,), document(2 * MIB)), Put((2,), document(10)), Put((3,), document(MIB + 1, 3))],
        create=None,
    )
    assert result is not None
    assert result.run is not None
    assert result.run.bytes < 20_000
    assert sorted(listed_blobs(store)) == ["run/1-0.blob", "run/1-1.blob"]
    for blob in result.run.blobs:
        assert (tmp_path / blob.name).stat().st_size == blob.bytes
    assert {blob.bin for blob in result.run.blobs} == {store.bin_of((1,)), store.bin_of((3,))}
    sizes = store.state().bytes_per_bin()
    assert sizes[store.bin_of((1,))] > 2 * MIB
    assert sizes.sum() < 4 * MIB
    store.check(absent=[(4,)])
    with pa.memory_map(str(tmp_path / result.run.name)) as file:
        footer = pa.ipc.open_file(file).schema.metadata[b"anabranch.blobs"]
    assert msgspec.json.decode(footer, type=tuple[BlobInfo, ...]) == result.run.blobs
    assert msgspec.json.decode(msgspec.json.encode(result.run), type=RunInfo) == result.run


def test_values_of_forgotten_rows_make_no_blob(tmp_path: Path) -> None:
    store = KindStore(tmp_path, DOCUMENTS)
    store.step([Put((1,), document(2 * MIB))])
    change = store.changed([Put((1,), document(3 * MIB))])
    change.tombstone[:] = True
    result = store.state().write(change, "run/x", create=plain_create)
    assert result is not None
    assert result.runs == ()
    assert not (tmp_path / "run/x-0.blob").exists()


def test_merging_neither_reads_nor_copies_a_blob(tmp_path: Path) -> None:
    written: Counter[str] = Counter()

    def create(path: Path, data: pa.Buffer) -> None:
        plain_create(path, data)
        written[path.name] += data.size

    store = KindStore(
        tmp_path, DOCUMENTS, bins=1, limits=CompactionLimits(young_bytes=0, small_rows=1)
    )
    store.step([Put((0,), document(3 * MIB))], create=create)
    with patch.object(state_files, "map_verified", side_effect=AssertionError):
        for number in range(1, 30):
            store.step([Put((number,), document(20, number))], create=create)
    assert listed_blobs(store) == {"run/1-0.blob"}
    assert "run/1" not in files(store.runs), "the run that named it first was merged away"
    assert sum(size for name, size in written.items() if not name.endswith(".blob")) < MIB
    store.check()


def test_a_replaced_blob_is_let_go_at_once(tmp_path: Path) -> None:
    store = KindStore(
        tmp_path, DOCUMENTS, bins=1, limits=CompactionLimits(young_bytes=0, fan_out=99)
    )
    store.step([Put((n,), document(2 * MIB if n < 3 else 9)) for n in range(200)])
    assert len(listed_blobs(store)) == 3
    store.step([Put((0,), document(2 * MIB, 5))])
    assert listed_blobs(store) == {"run/1-1.blob", "run/1-2.blob", "run/2-0.blob"}
    store.step([Put((1,), document(5)), Put((2,), None)])
    assert listed_blobs(store) == {"run/2-0.blob"}
    store.check()


def test_a_blob_that_expired_is_let_go_at_once(tmp_path: Path) -> None:
    layout = Layout(key_schema("int64"), VALUES, expires=True, blobs=True)
    store = KindStore(tmp_path, layout, bins=1, limits=CompactionLimits(young_bytes=0))
    store.step([Put((n,), document(9)) for n in range(50)])
    store.step([Put((99,), document(2 * MIB), expiry=store.now + 10)])
    assert len(listed_blobs(store)) == 1
    store.now += 10
    store.step([])
    assert listed_blobs(store) == set()
    store.check()


@pytest.fixture
def one(tmp_path: Path) -> KindStore:
    store = KindStore(tmp_path, DOCUMENTS)
    store.step([Put((1,), document(2 * MIB))])
    return store


def ask(store: KindStore) -> None:
    store.state().lookup(hashes_of([(1,)], store.space), batch_of([(1,)], store.layout.keys))


def test_a_missing_blob_is_named(one: KindStore) -> None:
    (one.root / "run/1-0.blob").unlink()
    with pytest.raises(MissingRun, match=r"A blob .*run/1-0\.blob"):
        ask(one)


@pytest.mark.parametrize("place", [0, 700, MIB, -1])
def test_a_flipped_byte_of_a_blob_is_corrupt(one: KindStore, place: int) -> None:
    path = one.root / "run/1-0.blob"
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptRun, match=r"blob is damaged: its checksum.*run/1-0\.blob"):
        ask(one)


def test_a_truncated_blob_is_corrupt(one: KindStore) -> None:
    path = one.root / "run/1-0.blob"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptRun, match="bytes, not"):
        ask(one)


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_exactly_the_blobs_of_what_is_held_are_listed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Random steps of values, maps and expiring state, with a limit of a few bytes."""
    subkeys = data.draw(st.sampled_from([pa.schema([]), key_schema("string")]))
    layout = Layout(
        key_schema("int64"), VALUES, subkeys, expires=data.draw(st.booleans()), blobs=True
    )
    store = KindStore(
        tmp_path_factory.mktemp("store"),
        layout,
        bins=data.draw(st.sampled_from([1, 4])),
        space=data.draw(st.sampled_from([1, 3, 2**32])),
        limits=data.draw(
            st.sampled_from(
                [
                    CompactionLimits(),
                    CompactionLimits(young_bytes=0),
                    CompactionLimits(young_bytes=0, fan_out=99),
                ]
            )
        ),
    )
    key = st.tuples(st.integers(0, 9))
    subkey = st.tuples(st.sampled_from(["", "a", "b", None])) if len(subkeys) else st.just(())
    with patch.object(blobs, "BLOB_BYTES", 200):
        for _ in range(data.draw(st.integers(1, 6))):
            store.now += 10 * data.draw(st.integers(0, 2))
            puts = []
            for pair in data.draw(st.lists(st.tuples(key, subkey), max_size=8, unique=True)):
                size = data.draw(st.sampled_from([None, 0, 10, 300, 700]))
                ahead = data.draw(st.none() | st.integers(0, 3)) if layout.expires else None
                expiry = None if ahead is None or size is None else store.now + 10 * ahead
                values = None if size is None else document(size, data.draw(st.integers(1, 9)))
                puts.append(Put(pair[0], values, pair[1], expiry))
            store.step(puts)
            store.check()
            large = [put for put in store.held().values() if len((put.values or ())[1]) >= 300]
            assert len(listed_blobs(store)) == len(large)
            assert all((store.root / name).exists() for name in listed_blobs(store))


PROGRAM = """
import resource, sys
from pathlib import Path
from tests.runs.test_blobs import store_large_value

store_large_value(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
LARGE = 200 * MIB


def store_large_value(root: Path) -> None:
    """Write a value of 200 MB, merge many times around it, and look it up again."""
    written: Counter[str] = Counter()

    def create(path: Path, data: pa.Buffer) -> None:
        plain_create(path, data)
        written[path.name] += data.size

    store = KindStore(root, DOCUMENTS, bins=1, limits=CompactionLimits(young_bytes=0, small_rows=1))
    value = np.arange(LARGE // 8, dtype=np.int64)
    offsets = pa.array([0, LARGE], pa.int32()).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(value)])
    changed = store.changed([Put((0,), (1, b"", []))])
    columns = [changed.values.column(0), array, changed.values.column(2)]
    large = KeyChanges(
        changed.hashes,
        changed.keys,
        pa.RecordBatch.from_arrays(columns, schema=VALUES),
        changed.tombstone,
    )
    result = store.state().write(large, "run/large", create=create)
    assert result is not None
    store.runs, store.live = result.runs, result.live
    for number in range(1, 12):
        store.step([Put((number,), document(20, number))], create=create)
    assert "run/large" not in files(store.runs)
    assert LARGE < sum(written.values()) < LARGE + MIB
    held = store.state().find(hashes_of([(0,)], store.space), batch_of([(0,)], DOCUMENTS.keys))
    buffer = held.values.column(1).buffers()[2]
    found = np.frombuffer(buffer, dtype=np.int64, count=LARGE // 8)
    assert held.found.all()
    assert np.array_equal(found, value)


def test_a_value_of_200_mb_is_written_once_and_found_again(tmp_path: Path) -> None:
    """In a process of its own, whose memory never holds much more than the value, twice."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # The value itself, the file while it is written or as it is mapped, and the process.
    assert int(done.stdout) * 1024 < 2 * LARGE + 300 * MIB
