"""The input files: right in number, size and order, and the same every time."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.data import load_batches, sum_of_amounts, write_held, write_stream
from benchmarks.sizes import Held, Stream

STREAM = Stream("s", rows=101, keys=7, batches=3, warm=1)


def test_a_batch_is_two_files_in_the_order_of_their_time(tmp_path: Path) -> None:
    write_stream(tmp_path / "s", STREAM)
    by_time = sorted((tmp_path / "s").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in by_time] == [
        f"{batch:05d}-{half}.parquet" for batch in range(3) for half in range(2)
    ]
    rows = [pq.read_metadata(path).num_rows for path in by_time]
    assert [rows[0] + rows[1], rows[2] + rows[3], rows[4] + rows[5]] == [101, 101, 101]


def test_the_same_stream_is_the_same_data(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_stream(tmp_path / name, STREAM)
    assert pq.read_table(tmp_path / "a").equals(pq.read_table(tmp_path / "b"))


def test_sum_of_the_first_batches(tmp_path: Path) -> None:
    write_stream(tmp_path / "s", STREAM)
    amounts = pq.read_table(tmp_path / "s", columns=["amount"]).column("amount").to_pylist()
    assert sum_of_amounts(tmp_path / "s", 3) == sum(amounts)
    assert sum_of_amounts(tmp_path / "s", 1) == sum(amounts[:101])


def test_held_keys_are_loaded_once_and_each_batch_changes_as_many(tmp_path: Path) -> None:
    held = Held(many=1000, few=50, rows=40, load=300, warm=1, most=3)
    for keys, loads in ((1000, 4), (50, 1)):
        assert load_batches(held, keys) == loads
        directory = tmp_path / str(keys)
        write_held(directory, held, keys)
        batches = [
            [key for half in range(2) for key in _keys(directory / f"{number:05d}-{half}.parquet")]
            for number in range(loads + 4)
        ]
        assert sorted(key for batch in batches[:loads] for key in batch) == list(range(keys))
        assert all(len(batch) == len(set(batch)) == 40 for batch in batches[loads:])
        assert not (directory / f"{loads + 4:05d}-0.parquet").exists()


def _keys(path: Path) -> list[int]:
    return [int(key) for key in pq.read_table(path).column("key").to_pylist()]
