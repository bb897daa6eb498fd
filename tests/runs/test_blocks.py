"""Some bins of a large run: read and checked without the rest of the file."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptRun, MissingRun
from anabranch.homes.home import HomeFiles
from anabranch.homes.pieces import forget_pieces
from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import Listed, RunInfo
from anabranch.runs import run_file
from anabranch.runs.run_file import Run, forget_runs, open_part, open_run, write_run
from tests.runs.state_model import key_schema

BINS = 16
VALUES = pa.schema(
    [
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.binary())])),
    ]
)
LAYOUT = Layout(key_schema("int64"), VALUES)
EVERY = BinSet.every(BINS)
BIN_SETS = st.sets(st.integers(0, BINS - 1)).map(BinSet.of)


def rows(counts: list[int]) -> pa.RecordBatch:
    """So many rows in each bin, with values and NULLs of every kind."""
    hashes = [bin * 2**60 + at for bin, count in enumerate(counts) for at in range(count)]
    numbers = range(len(hashes))
    columns = [
        pa.array(hashes, pa.uint64()),
        pa.array(numbers, pa.int64()),
        pa.array([None if n % 7 == 3 else "é" * (n % 5) for n in numbers], pa.string()),
        pa.array([None if n % 5 == 1 else n % 3 == 0 for n in numbers]),
        pa.array([None if n % 4 == 2 else Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
        pa.array([None if n % 6 == 5 else [n] * (n % 3) for n in numbers], pa.list_(pa.int32())),
        pa.array(
            [None if n % 9 == 8 else {"x": n / 3, "y": None if n % 2 else b"b"} for n in numbers],
            VALUES.field("place").type,
        ),
        pa.array([n % 11 == 10 for n in numbers]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LAYOUT.schema)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a few rows, so that a run has many."""
    monkeypatch.setattr(run_file, "BATCH_BYTES", 256)


def written(root: Path, counts: list[int]) -> RunInfo:
    return write_run(root, "run/a", "totals", LAYOUT, [rows(counts)], BINS)


def picked(run: Run, bins: BinSet) -> list[dict[str, object]]:
    table = pa.Table.from_batches(run.select(bins.mask(BINS)), schema=LAYOUT.schema)
    found: list[dict[str, object]] = table.to_pylist()
    return found


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=BINS, max_size=BINS), BIN_SETS)
def test_a_part_has_the_rows_of_its_bins(counts: list[int], bins: BinSet) -> None:
    with tempfile.TemporaryDirectory() as name:
        info = written(Path(name), counts)
        part = open_part(Path(name), info, bins)
        whole = open_run(Path(name), info)
        forget_runs()
    assert picked(part, bins) == picked(whole, bins)
    assert part.bin_rows.tolist() == whole.bin_rows.tolist() == counts
    assert part.here is None or bins.mask(BINS)[~part.here].sum() == 0
    assert len(part.rows) <= len(whole.rows)


def test_a_run_of_one_batch_has_no_parts(tmp_path: Path) -> None:
    info = written(tmp_path, [1, 1, *[0] * 14])
    assert info.tail is None
    assert open_part(tmp_path, info, BinSet.of([1])).here is None


def batch_ranges(path: Path) -> list[tuple[int, int]]:
    """Where in the file the buffers of each batch lie."""
    data = pa.py_buffer(path.read_bytes())
    reader = pa.ipc.open_file(data)
    found = []
    for number in range(reader.num_record_batches):
        buffers = [
            buffer
            for column in reader.get_batch(number).columns
            for buffer in column.buffers()
            if buffer is not None and buffer.size
        ]
        starts = [buffer.address - data.address for buffer in buffers]
        found.append((min(starts), max(s + b.size for s, b in zip(starts, buffers, strict=True))))
    return found


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_damage_is_noticed_where_it_is_read_and_nowhere_else(tmp_path: Path) -> None:
    info = written(tmp_path, [4] * BINS)
    path = tmp_path / "run/a"
    ranges = batch_ranges(path)
    assert len(ranges) > 4
    first, last = BinSet.of([0]), BinSet.of([BINS - 1])
    kept = picked(open_part(tmp_path, info, last), last)
    flip(path, ranges[0][0])
    assert picked(open_part(tmp_path, info, last), last) == kept
    for bins in (first, first | last, EVERY):
        with pytest.raises(CorruptRun, match="batch 0 is not what was committed"):
            open_part(tmp_path, info, bins)
    with pytest.raises(CorruptRun):
        open_run(tmp_path, info)


def test_damage_at_the_end_of_the_file_is_always_noticed(tmp_path: Path) -> None:
    info = written(tmp_path, [4] * BINS)
    path = tmp_path / "run/a"
    assert info.tail is not None
    for place in np.linspace(info.bytes - info.tail.bytes, info.bytes - 1, 20).astype(int):
        flip(path, place)
        with pytest.raises(CorruptRun, match="its metadata is not what"):
            open_part(tmp_path, info, BinSet.of([3]))
        flip(path, place)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRun, match="bytes"):
        open_part(tmp_path, info, BinSet.of([3]))
    path.unlink()
    with pytest.raises(MissingRun):
        open_part(tmp_path, info, BinSet.of([3]))


def test_a_home_copies_bins_of_a_run_that_is_damaged_elsewhere(tmp_path: Path) -> None:
    """What is not needed is not read: a store that is far away is asked for the bins that move."""
    (tmp_path / "store").mkdir()
    info = written(tmp_path / "store", [4] * BINS)
    flip(tmp_path / "store/run/a", batch_ranges(tmp_path / "store/run/a")[0][0])
    forget_runs()
    forget_pieces()
    runs = (Listed(info, EVERY),)
    last = BinSet.of([BINS - 1])
    home = HomeFiles(tmp_path / "home", tmp_path / "store")
    assert set(home.copy_ahead(runs, last, None).bytes) == {BINS - 1}
    (run,) = home.open((Listed(info, last),))
    assert len(picked(run, last)) == 4
    with pytest.raises(CorruptRun):
        home.copy_ahead(runs, BinSet.of([0]), None)
