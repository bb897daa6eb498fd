from __future__ import annotations

import gc
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash

from anabranch.errors import CorruptRun, FutureFormat, MissingRun, NameTaken, StoreUnavailable
from anabranch.records.bins import BinSet, bin_of
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunInfo
from anabranch.runs.run_file import Run, forget_runs, open_run, write_run
from anabranch.runs.sorted_rows import hash_column
from anabranch.store.checksums import checksum_of
from tests.runs.state_model import key_schema

BINS = 16
LAYOUT = Layout(key_schema("int64"), pa.schema([("text", pa.string())]))


def rows(numbers: list[int], texts: list[str | None] | None = None) -> pa.RecordBatch:
    """One row per bin number, several in a bin in the order given."""
    hashes = [number * 2**60 + at for at, number in enumerate(numbers)]
    columns = [
        pa.array(hashes, pa.uint64()),
        pa.array(range(len(numbers)), pa.int64()),
        pa.array(texts or [f"t{n}" for n in numbers], pa.string()),
        pa.array([False] * len(numbers)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LAYOUT.schema)


def write(root: Path, *batches: pa.RecordBatch, name: str = "run/a") -> RunInfo:
    return write_run(root, name, "totals", LAYOUT, batches, BINS)


def everything(run: Run) -> pa.Table:
    table = pa.Table.from_batches(run.rows.batches, schema=LAYOUT.schema)
    return table.combine_chunks()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    batch = rows([0, 0, 3, 9, 15], ["x", None, "", "é", "y"])
    info = write(tmp_path, batch)
    data = (tmp_path / "run/a").read_bytes()
    assert info == RunInfo("run/a", "totals", 5, len(data), xxhash.xxh3_64_hexdigest(data), 1)
    run = open_run(tmp_path, info)
    assert everything(run) == pa.Table.from_batches([batch])
    assert run.bins == BINS
    assert run.bin_rows.tolist() == [2, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert len(run.rows) == 5


def test_a_run_that_an_earlier_version_wrote_with_a_crc_is_read(tmp_path: Path) -> None:
    info = write(tmp_path, rows([0, 3]))
    crc = zlib.crc32((tmp_path / "run/a").read_bytes())
    run = open_run(tmp_path, msgspec.structs.replace(info, checksum=f"{crc:08x}"))
    assert len(run.rows) == 2
    with pytest.raises(CorruptRun):
        open_run(tmp_path, msgspec.structs.replace(info, checksum=f"{crc ^ 1:08x}"))


def test_the_information_survives_json() -> None:
    info = RunInfo("run/a", "totals", 5, 1000, "00ff00ff")
    assert msgspec.json.decode(msgspec.json.encode(info), type=RunInfo) == info


def test_bytes_are_counted_bin_by_bin(tmp_path: Path) -> None:
    run = open_run(tmp_path, write(tmp_path, rows([1, 1, 4], ["ab", None, "abcdef"])))
    # Per row: hash 8, key 8, an offset of 4; the text; and less than a byte for the tombstones.
    assert run.bin_bytes.tolist() == [0, 42, 0, 0, 26, *[0] * 11]


def test_bins_are_selected_in_order_without_a_copy(tmp_path: Path) -> None:
    run = open_run(tmp_path, write(tmp_path, rows([0, 1, 2, 2, 5, 7])))
    picked = list(run.select(BinSet.of([1, 2, 5, 6]).mask(BINS)))
    assert [part.column("k_c0").to_pylist() for part in picked] == [[1, 2, 3], [4]]
    assert (
        picked[0].column(1).buffers()[1].address
        == run.rows.batches[0].column(1).buffers()[1].address
    )
    assert list(run.select(np.zeros(BINS, dtype=np.bool_))) == []


def test_small_bins_share_a_batch_and_a_large_one_has_its_own(tmp_path: Path) -> None:
    small, large = "s" * 300_000, "l" * 2_000_000
    texts: list[str | None] = [small, small, small, small, large, small, small, "tiny"]
    run = open_run(tmp_path, write(tmp_path, rows([0, 1, 2, 3, 4, 5, 5, 6], texts)))
    bins = [sorted(set(bin_of(hash_column(b), BINS).tolist())) for b in run.rows.batches]
    assert bins == [[0, 1, 2], [3], [4], [5, 6]]


def test_batches_given_one_after_the_other_become_one_run(tmp_path: Path) -> None:
    whole = rows([0, 1, 1, 8])
    run = open_run(tmp_path, write(tmp_path, whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)))
    assert everything(run) == pa.Table.from_batches([whole])
    assert run.bin_rows[[0, 1, 8]].tolist() == [1, 2, 1]


@pytest.mark.parametrize("numbers", [[[3, 1]], [[1], [1]], [[4], [2]]])
def test_rows_out_of_order_are_refused(tmp_path: Path, numbers: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="sorted"):
        write(tmp_path, *(rows(some) for some in numbers))
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_written_once(tmp_path: Path) -> None:
    info = write(tmp_path, rows([1]))
    with pytest.raises(NameTaken, match="run/a"):
        write(tmp_path, rows([2]))
    assert open_run(tmp_path, info).bin_rows[1] == 1


def test_a_store_that_vanished_does_not_come_back_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        write(tmp_path / "gone", rows([1]))
    assert not (tmp_path / "gone").exists()


def test_the_caller_may_create_the_file(tmp_path: Path) -> None:
    made: dict[Path, pa.Buffer] = {}
    info = write_run(
        tmp_path, "run/b", "totals", LAYOUT, [rows([1])], BINS, create=made.__setitem__
    )
    assert list(made) == [tmp_path / "run/b"]
    assert made[tmp_path / "run/b"].size == info.bytes
    assert not (tmp_path / "run").exists()


def test_a_run_says_its_format_and_bins_in_its_footer(tmp_path: Path) -> None:
    write(tmp_path, rows([1]))
    with pa.memory_map(str(tmp_path / "run/a")) as file:
        metadata = pa.ipc.open_file(file).schema.metadata
    assert metadata[b"anabranch.format"] == b"1"
    assert metadata[b"anabranch.bins"] == b"16"


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    info = write(tmp_path, rows([1]))
    (tmp_path / "run/a").unlink()
    with pytest.raises(MissingRun, match="run/a"):
        open_run(tmp_path, info)


@pytest.mark.parametrize("left", [0, 1, 8, 100, -8, -1])
def test_a_truncated_run_is_corrupt(tmp_path: Path, left: int) -> None:
    info = write(tmp_path, rows([1, 2, 3]))
    path = tmp_path / "run/a"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CorruptRun, match=r"run/a.*checkpoint") as caught:
        open_run(tmp_path, info)
    assert f"not {info.bytes}" in str(caught.value)


def test_a_flipped_bit_anywhere_is_corrupt(tmp_path: Path) -> None:
    info = write(tmp_path, rows([1, 2, 3]))
    path = tmp_path / "run/a"
    good = path.read_bytes()
    places = [*range(0, len(good), 97), len(good) - 1]
    for at in places:
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        path.write_bytes(bad)
        with pytest.raises(CorruptRun, match="checksum"):
            open_run(tmp_path, info)
    path.write_bytes(good)
    assert len(open_run(tmp_path, info).rows) == 3


def committed(root: Path, data: bytes, **about: Any) -> RunInfo:
    """Some bytes that a commit, by mistake or in another version, calls a run."""
    (root / "strange").write_bytes(data)
    buffer = pa.py_buffer(data)
    return RunInfo(
        **{
            "name": "strange",
            "operator": "totals",
            "rows": 1,
            "bytes": len(data),
            "checksum": checksum_of(buffer),
            **about,
        }
    )


def arrow_file(metadata: dict[bytes, bytes] | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, LAYOUT.schema.with_metadata(metadata)) as writer:
        writer.write_batch(rows([1]))
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "data",
    [
        b"not a run",
        b"ARROW1\0\0ARROW1",
        arrow_file(None),
        arrow_file({b"anabranch.format": b"one"}),
        arrow_file({b"anabranch.format": b"1", b"anabranch.bins": b"16"}),
        arrow_file(
            {
                b"anabranch.format": b"1",
                b"anabranch.bins": b"16",
                b"anabranch.bin_rows": b"junk",
                b"anabranch.bin_bytes": b"junk",
            }
        ),
    ],
)
def test_another_file_under_a_runs_name_is_corrupt(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorruptRun, match="not a run"):
        open_run(tmp_path, committed(tmp_path, data))


def test_a_wrong_number_of_rows_is_corrupt(tmp_path: Path) -> None:
    info = write(tmp_path, rows([1, 2]))
    with pytest.raises(CorruptRun, match="2 rows, not 3"):
        open_run(tmp_path, msgspec.structs.replace(info, rows=3))


def test_a_run_of_a_newer_version_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    for info in (
        committed(tmp_path, b"unreadable here", format=2),
        committed(tmp_path, arrow_file({b"anabranch.format": b"2"})),
    ):
        with pytest.raises(FutureFormat, match="format 2; this version reads up to 1"):
            open_run(tmp_path, info)


def test_a_run_is_opened_once_per_process(tmp_path: Path) -> None:
    info = write(tmp_path, rows([1]))
    assert open_run(tmp_path, info) is open_run(tmp_path, info)


def test_other_content_under_the_same_name_is_not_taken_from_memory(tmp_path: Path) -> None:
    before = open_run(tmp_path, write(tmp_path, rows([1])))
    (tmp_path / "run/a").unlink()
    after = open_run(tmp_path, write(tmp_path, rows([2])))
    assert (before.bin_rows[1], after.bin_rows[1], after.bin_rows[2]) == (1, 0, 1)


def test_rows_outlive_their_file_but_memory_lets_a_removed_one_go(tmp_path: Path) -> None:
    forget_runs()
    info = write(tmp_path, rows([1, 2, 3]))
    kept = open_run(tmp_path, info).rows
    (tmp_path / "run/a").unlink()
    open_run(tmp_path, write(tmp_path, rows([4]), name="run/b"))
    with pytest.raises(MissingRun):
        open_run(tmp_path, info)
    gc.collect()
    assert kept.take(np.array([0, 2])).column("k_c0").to_pylist() == [0, 2]


def test_open_runs_hold_no_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    runs = [open_run(tmp_path, write(tmp_path, rows([n]), name=f"run/{n}")) for n in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [len(run.rows) for run in runs] == [1] * 5
