"""Large things on a real Spark: a value, a list, many new keys, a step ten times the usual size."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.spark.running import completed

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("spark")]

MIB = 1 << 20
LARGE = 200 * MIB
CEILING = 2048 * MIB


class Peak:
    """The most memory that the Python workers of this process had together."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._stop.wait(0.05):
            total = 0
            for child in me.children(recursive=True):
                try:
                    if "python" in child.name():
                        total += child.memory_info().rss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)


def test_a_value_of_200_mib_goes_from_step_to_step(tmp_path: Path) -> None:
    def grow(key: Any, row: Any, kept: bytes | None) -> Any:
        kept = bytes([row.n]) * LARGE if kept is None else kept
        return (key.who, len(kept), kept[0], kept[-1]), kept[:-1] + bytes([row.n])

    out = ab.MemorySink()
    flow = ab.Dataflow("large-value")
    rows = flow.source(
        "rows",
        ab.ScriptedSource(
            "who string, n int", [[("a", 1)], [("b", 5)], [("a", 2)], [("a", 3)], ab.EOF]
        ),
    )
    rows.key_distribute("by-who", "who").stateful_map(
        "kept", grow, output="who string, size bigint, first int, last int"
    ).sink("out", out)
    directory = tmp_path / "state"
    with Peak() as peak:
        completed(flow, directory)
    print(f"the Python workers had {peak.bytes / MIB:.0f} MiB at most")
    assert [tuple(row.values()) for row in out.rows()] == [
        ("a", LARGE, 1, 1),
        ("b", LARGE, 5, 5),
        ("a", LARGE, 1, 1),
        ("a", LARGE, 1, 2),
    ]
    assert peak.bytes < CEILING


def test_a_list_of_a_million_under_one_key(tmp_path: Path) -> None:
    class Remembers(ab.Process):
        seen = ab.ListState("n bigint")

        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            for row in rows:
                self.seen.append(row.n)
            if rows[-1].n >= 999_999:
                seen = self.seen.get()
                return (key.who, len(seen), sum(seen), seen == sorted(seen))
            return None

    for number in range(10):
        n = np.arange(number * 100_000, (number + 1) * 100_000)
        table = pa.table({"who": ["a"] * len(n), "n": n})
        path = tmp_path / "in" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
    out = ab.MemorySink()
    flow = ab.Dataflow("long-list")
    flow.source(
        "rows",
        ab.FileSource(
            tmp_path / "in", "parquet", "who string, n bigint", watch=False, max_files_per_step=1
        ),
    ).key_distribute("by-who", "who").process(
        "remembers", Remembers, output="who string, n bigint, total bigint, ordered boolean"
    ).sink("out", out)
    with Peak() as peak:
        pipeline = completed(flow, tmp_path / "state")
    print(f"the Python workers had {peak.bytes / MIB:.0f} MiB at most")
    assert [tuple(row.values()) for row in out.rows()] == [("a", 10**6, 499_999_500_000, True)]
    assert pipeline.status().keys == {"remembers.seen": 10**6}
    assert peak.bytes < CEILING


def many_keys(directory: Path, sizes: list[int]) -> int:
    """Files of rows with keys that were never there before; gives the sum of all amounts."""
    directory.mkdir()
    first = 0
    for number, size in enumerate(sizes):
        key = np.arange(first, first + size)
        table = pa.table({"key": key, "amount": key % 7})
        pq.write_table(table, directory / f"{number:03d}.parquet")
        first += size
    return int(sum(np.arange(first) % 7))


@pytest.mark.parametrize("kind", ["aggregate", "stateful_map"])
def test_two_million_new_keys_in_one_step_ten_times_the_usual_stay_below_the_ceiling(
    tmp_path: Path, kind: str
) -> None:
    total = many_keys(tmp_path / "in", [200_000, 200_000, 2_000_000, 200_000])

    def add(key: Any, row: Any, kept: int | None) -> Any:
        kept = (kept or 0) + row.amount
        return None, kept

    flow = ab.Dataflow("many-keys")
    keyed = flow.source(
        "rows",
        ab.FileSource(
            tmp_path / "in",
            "parquet",
            "key bigint, amount bigint",
            watch=False,
            max_files_per_step=1,
        ),
    ).key_distribute("by-key", "key")
    if kind == "aggregate":
        result = keyed.aggregate("sums", total="sum(amount)")
    else:
        result = keyed.stateful_map("sums", add, state="total bigint", output="key bigint")
    result.where("false").sink("out", ab.MemorySink())
    with Peak() as peak:
        pipeline = completed(flow, tmp_path / "state", bins=256)
    print(f"{kind}: the Python workers had {peak.bytes / MIB:.0f} MiB at most")
    assert pipeline.status().keys == {"sums": 2_600_000}
    found = pipeline.query('select count(*) as n, sum(total) as total from "sums"').to_pylist()
    assert found == [{"n": 2_600_000, "total": total}]
    assert peak.bytes < CEILING
