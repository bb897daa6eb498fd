"""Orders arrive one file at a time, whole, at the pace of the pipeline or of patience."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from anabranch.cli.demo.orders import OrderWriter, write_orders


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_has_the_rows_asked_for_and_nothing_is_left_aside(tmp_path: Path) -> None:
    write_orders(tmp_path / "orders-00001.json", 50, random.Random(7))
    assert names(tmp_path) == ["orders-00001.json"]
    text = (tmp_path / "orders-00001.json").read_text()
    orders = [json.loads(line) for line in text.splitlines()]
    assert len(orders) == 50
    assert all(set(order) == {"customer", "amount"} for order in orders)
    assert all(100 <= order["amount"] <= 20_000 for order in orders)


def test_the_same_seed_gives_the_same_orders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_orders(tmp_path / name, 20, random.Random(3))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_next_file_comes_when_the_last_but_one_is_committed(tmp_path: Path) -> None:
    writer = OrderWriter(tmp_path, rows=7, files=4, seed=1, clock=lambda: 0.0)  # endless patience
    writer.start()
    for number, written, committed in ((2, 4, 2), (3, 6, 4)):
        eventually(lambda rows=written: writer.written == rows)  # type: ignore[misc]
        assert len(names(tmp_path)) == number, "one waits for the next step, no more"
        assert not writer.finished()
        writer.committed(committed)
    eventually(lambda: writer.written == 7)
    assert not writer.finished()
    writer.committed(6)
    eventually(writer.finished)
    assert names(tmp_path) == [f"orders-0000{n}.json" for n in (1, 2, 3, 4)]


def test_a_pipeline_that_is_slower_than_patience_is_not_waited_for(tmp_path: Path) -> None:
    ticks = count(step=1000)
    writer = OrderWriter(tmp_path, rows=30, files=10, seed=1, clock=lambda: float(next(ticks)))
    writer.start()
    eventually(writer.finished)
    assert len(names(tmp_path)) == 10


def test_stopping_writes_no_more(tmp_path: Path) -> None:
    writer = OrderWriter(tmp_path, rows=30, files=10, seed=1, clock=lambda: 0.0)
    writer.start()
    eventually(lambda: writer.written == 6)
    writer.stop()
    assert writer.finished()
    assert names(tmp_path) == ["orders-00001.json", "orders-00002.json"]


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    writer = OrderWriter(tmp_path / "gone", rows=1, files=1, seed=1, clock=lambda: 0.0)
    writer.start()
    writer.stop()
    with pytest.raises(FileNotFoundError):
        writer.finished()
