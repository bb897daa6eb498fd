"""A run in which state expires all the time, and how many bytes it leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.plan.state_view import StateView
from anabranch.records.bins import BinSet
from anabranch.runs.region_state import RegionState
from anabranch.task.state_reader import Snapshot, read_snapshot
from tests.spark.running import completed

BINS = 16
STATES = ("sums", "last", "history.seen", "history.times", "history.value")


def rows(partition: int, start: int, end: int) -> dict[str, Any]:
    """Half of the rows have keys of their own, the others are of keys that come back."""
    numbers = np.arange(start, end, dtype=np.int64)
    return {"key": np.where(numbers % 2 == 1, numbers, numbers % 512), "n": numbers}


def last(key: Any, row: Any, seen: Any) -> Any:
    return None, (row.n, f"row {row.n} of {key.key}")


def history(ttl: str) -> type[ab.Process]:
    """A class with every kind of handle, all of which expire."""

    class History(ab.Process):
        seen = ab.ListState("n bigint", ttl=ttl)
        times = ab.MapState("part bigint", "n bigint", ttl=ttl)
        value = ab.ValueState("n bigint", ttl=ttl)

        def on_rows(self, key: Any, rows: list[Any]) -> None:
            for row in rows:
                self.seen.append(row.n)
                self.times[row.n % 4] = row.n
            self.value.set(len(rows))

    return History


def expiring(steps: int, per_step: int, ttl: str) -> ab.Dataflow:
    """A dataflow in which every kind of state has a time-to-live."""
    flow = ab.Dataflow("expiring")
    source = ab.GeneratorSource(
        rows, "key bigint, n bigint", rows_per_step=per_step, rows=steps * per_step
    )
    keyed = flow.source("rows", source).key_distribute("by-key", "key")
    outputs = [
        keyed.aggregate("sums", total="sum(n)", count="count(*)", ttl=ttl).select("total"),
        keyed.stateful_map(
            "last", last, state="n bigint, text string", output="total bigint", ttl=ttl
        ),
        keyed.process("history", history(ttl), output="total bigint"),
    ]
    for number, output in enumerate(outputs):
        output.where("false").sink(f"out-{number}", ab.MemorySink())
    return flow


class Sizes(NamedTuple):
    """Bytes after a run.

    Of what is alive in the last step, of the files that its commit lists, of those and
    the files of all kept checkpoints, and of the whole directory.
    """

    alive: int
    listed: int
    kept: int
    directory: int


def sizes_after(flow: ab.Dataflow, directory: Path, **options: Any) -> tuple[Sizes, Snapshot]:
    """Run to the end, without grace for files that nobody needs, and look."""
    settings = ab.Settings(
        query_seconds=0,
        grace_seconds=0,
        checkpoint_steps=5,
        keep_checkpoints=2,
        target_latency_seconds=None,
    )
    pipeline = completed(flow, directory, bins=BINS, settings=settings, **options)
    snapshot = read_snapshot(directory)
    kept = [read_snapshot(directory, each.step) for each in pipeline.status().checkpoints]
    whole = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    alive = sum(alive_rows(snapshot.view(name), directory).nbytes for name in STATES)
    return Sizes(alive, _bytes(snapshot), _bytes(snapshot, *kept), whole), snapshot


def alive_rows(view: StateView, directory: Path) -> pa.Table:
    """The rows that have not expired, with hash, key and expiry."""
    nothing = np.zeros(view.bins, dtype=np.int64)
    every = BinSet.every(view.bins)
    state = RegionState(
        view.operator, view.layout(), view.runs, directory, view.bins, every, nothing
    )
    return state.scan(view.expires_at)


def _bytes(*snapshots: Snapshot) -> int:
    """The bytes of the runs that snapshots list, each file once."""
    found = {
        listed.run.name: listed.run.bytes
        for snapshot in snapshots
        for state in snapshot.states
        for listed in state.runs
    }
    return sum(found.values())
