"""Bytewax: count and sum per key over the batches of a directory, until time is up.

Two processes, because one runs Python on one core only. Each reads one file of every batch,
exchanges rows by key, and counts what comes out of its sink, which keeps nothing. Recovery is on:
a snapshot of the changed keys at every interval.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

PROCESSES = 2
CHUNK = 5_000
Item = tuple[str, int]
Total = tuple[int, int]


class Half(StatefulSourcePartition[Item, int]):  # type: ignore[misc]
    """One file of every batch, in chunks; ends when time is up."""

    def __init__(self, files: list[Path], deadline: float, position: int) -> None:
        """Continue at the ``position``-th chunk."""
        self._chunks = self._read(files)
        for _ in range(position):
            next(self._chunks)
        self._deadline = deadline
        self._position = position

    def _read(self, files: list[Path]) -> Iterator[list[Item]]:
        for path in files:
            table = pq.read_table(path, columns=["key", "amount"])
            for chunk in table.to_batches(max_chunksize=CHUNK):
                keys, amounts = chunk.to_pydict().values()
                yield [(str(key), amount) for key, amount in zip(keys, amounts, strict=True)]

    def next_batch(self) -> list[Item]:
        """The next rows."""
        if time.time() > self._deadline:
            raise StopIteration
        self._position += 1
        return next(self._chunks)

    def snapshot(self) -> int:
        """Where to continue."""
        return self._position


class Batches(FixedPartitionedSource[Item, int]):  # type: ignore[misc]
    """The directory, a partition for each process."""

    def __init__(self, directory: Path, deadline: float) -> None:
        """Read until the deadline."""
        self._directory = directory
        self._deadline = deadline

    def list_parts(self) -> list[str]:
        """One partition per file of a batch."""
        return [str(half) for half in range(PROCESSES)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Half:
        """Open a partition."""
        files = sorted(self._directory.glob(f"*-{for_part}.parquet"))
        return Half(files, self._deadline, resume_state or 0)


class Counting(StatelessSinkPartition[Any]):  # type: ignore[misc]
    """Notes when how many rows have come out."""

    def __init__(self, marks: list[tuple[float, int]]) -> None:
        """Note it there."""
        self._marks = marks

    def write_batch(self, items: list[Any]) -> None:
        """Count."""
        self._marks.append((time.time(), len(items)))


class CountingSink(DynamicSink[Any]):  # type: ignore[misc]
    """A sink that keeps nothing."""

    def __init__(self, marks: list[tuple[float, int]]) -> None:
        """Note progress there."""
        self._marks = marks

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
        """One part per worker."""
        return Counting(self._marks)


def add(held: Total | None, amount: int) -> tuple[Total, Total]:
    """Count and sum."""
    count, total = held or (0, 0)
    new = (count + 1, total + amount)
    return new, new


def work(spec: dict[str, Any], number: int) -> None:
    """One of the processes: run the dataflow, write the marks."""
    marks: list[tuple[float, int]] = []
    flow = Dataflow("totals")
    rows = op.input("rows", flow, Batches(Path(spec["data"]), spec["deadline"]))
    totals = op.stateful_map("totals", rows, add)
    op.output("out", totals, CountingSink(marks))
    cluster_main(
        flow,
        spec["addresses"],
        number,
        epoch_interval=timedelta(seconds=spec["options"]["snapshot_seconds"]),
        recovery_config=RecoveryConfig(spec["recovery"]),
        worker_count_per_proc=1,
    )
    Path(spec["marks"][number]).write_text(
        json.dumps({"marks": marks, "ended": time.time()}), encoding="utf-8"
    )


def free_address() -> str:
    """An address nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def by_second(marks: list[tuple[float, int]], ended: float) -> list[dict[str, float]]:
    """Rows that came out in each whole second, and in the rest after them."""
    first = marks[0][0]
    buckets: dict[int, int] = {}
    for at, rows in marks:
        buckets[int(at - first)] = buckets.get(int(at - first), 0) + rows
    last = max(buckets)
    whole = [{"rows": buckets.get(second, 0), "seconds": 1.0} for second in range(last)]
    return [*whole, {"rows": buckets[last], "seconds": ended - first - last}]


def main(spec: dict[str, Any]) -> None:
    """Start the processes and put their marks together."""
    home = Path(spec["work"])
    recovery = home / "recovery"
    recovery.mkdir(parents=True)
    init_db_dir(recovery, PROCESSES)
    spec |= {
        "addresses": [free_address() for _ in range(PROCESSES)],
        "recovery": str(recovery),
        "marks": [str(home / f"marks-{number}.json") for number in range(PROCESSES)],
        "deadline": time.time() + spec["seconds"],
    }
    shared = home / "spec.json"
    shared.write_text(json.dumps(spec), encoding="utf-8")
    started = [
        subprocess.Popen([sys.executable, __file__, str(shared), str(number)])
        for number in range(PROCESSES)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"a process ended with {max(codes)}")
    found = [json.loads(Path(name).read_text(encoding="utf-8")) for name in spec["marks"]]
    marks = sorted((at, rows) for each in found for at, rows in each["marks"])
    ended = max(each["ended"] for each in found)
    outcome = {
        "batches": by_second(marks, ended),
        "seconds": ended - marks[0][0],
        "cut": ended > spec["deadline"],
        "facts": {"version": version("bytewax"), "rows": sum(rows for _, rows in marks)},
    }
    Path(spec["result"]).write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if len(sys.argv) > 2:
        work(given, int(sys.argv[2]))
    else:
        main(given)
