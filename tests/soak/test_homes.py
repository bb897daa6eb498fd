"""Homes under a real load: a million keys and one very large one change their workers.

``ANABRANCH_HOME_KEYS`` is the number of keys; some thousands show that the test itself works.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.spark.running import write_json

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("spark")]

MIB = 1 << 20
LARGE = 200 * MIB
KEYS = int(os.environ.get("ANABRANCH_HOME_KEYS", "1000000"))
ROWS = 100_000
FILES = 240
WARM = 12
STEADY = 20


def until(pipeline: ab.Pipeline, done: Callable[[ab.Status], bool]) -> None:
    while not done(pipeline.status()):
        assert pipeline.wait(0.05).phase is ab.Phase.RUNNING


def page(number: int) -> np.ndarray[Any, Any]:
    """The keys of a file: all of them in the first, then some of them at random."""
    if number == 0:
        return np.arange(KEYS)
    return np.random.default_rng(number).integers(0, KEYS, ROWS)


@pytest.mark.parametrize("isolated", [True, False], ids=["isolated", "one home"])
def test_a_million_keys_move_while_rows_flow(tmp_path: Path, isolated: bool) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        keys = page(number)
        table = pa.table({"k": keys, "v": np.ones(len(keys))})
        pq.write_table(table, tmp_path / "in" / f"{number:06}.parquet")
    flow = ab.Dataflow("million")
    source = ab.FileSource(
        str(tmp_path / "in"), format="parquet", schema="k bigint, v double", max_files_per_step=1
    )
    keyed = flow.source("in", source).key_distribute("by-k", "k")
    keyed.aggregate("totals", n="count(*)", v="sum(v)").sink(
        "out", ab.FileSink(str(tmp_path / "out"), format="parquet")
    )
    done: list[ab.StepDone] = []
    settings = ab.Settings(
        isolate_workers=isolated, homes=str(tmp_path / "homes"), target_latency_seconds=None
    )
    pipeline = ab.run(
        flow,
        directory=tmp_path / "state",
        bins=256,
        workers=2,
        settings=settings,
        watch=done.append,
    )
    until(pipeline, lambda status: status.step >= WARM + STEADY)
    steady = [each.seconds for each in done[WARM:]]
    for workers in (4, 2):
        before = len(done)
        pipeline.scale(workers)
        until(pipeline, lambda status: status.rescale is None)
        moving = [each.seconds for each in done[before:]]
        report(f"{workers} workers", steady, moving, pipeline.scale_history()[-1].moved)
    status = pipeline.shutdown()
    files = status.step
    expected = np.zeros(KEYS, dtype=np.int64)
    for number in range(files):
        np.add.at(expected, page(number), 1)
    held = pipeline.state_table("totals")
    found = np.zeros(KEYS, dtype=np.int64)
    found[held["k"].to_numpy()] = held["n"].to_numpy()
    assert status.rows == KEYS + (files - 1) * ROWS, "one file a step"
    assert np.array_equal(found, expected), "nothing is missing or doubled"
    assert [each.outcome for each in pipeline.scale_history()] == ["settled", "settled"]
    assert (status.homes.store_bytes, status.homes.misses) == (0, 0)
    assert (status.homes.moved_bytes > 0) == isolated


def report(what: str, steady: list[float], moving: list[float], moved: Any) -> None:
    """Print a rescale against design section 11: the longest step, of as many steady ones."""
    longest = max(steady[-len(moving) :])
    print(
        f"\n{what}: {moved.bins} bins, {moved.bytes / MIB:.1f} MiB held, "
        f"{moved.copied_bytes / MIB:.1f} MiB copied in {moved.steps} steps; longest step "
        f"{max(moving):.2f} s against {longest:.2f} s of steady ones "
        f"({max(moving) / longest:.2f} times; the target is 1.25), median "
        f"{statistics.median(moving):.2f} s against {statistics.median(steady):.2f} s"
    )


def test_a_key_of_200_mib_moves(tmp_path: Path) -> None:
    def grow(key: Any, row: Any, kept: bytes | None) -> Any:
        if kept is None:
            kept = bytes([row.n]) * (LARGE if key.who == "giant" else 10)
        return (key.who, len(kept), kept[0], kept[-1]), kept

    out = ab.MemorySink()
    flow = ab.Dataflow("giant")
    source = ab.FileSource(str(tmp_path / "in"), format="json", schema="who string, n int")
    flow.source("in", source).key_distribute("by-who", "who").stateful_map(
        "kept", grow, output="who string, size bigint, first int, last int"
    ).sink("out", out)
    first = [{"who": "giant", "n": 7}, *({"who": f"w{n}", "n": 1} for n in range(50))]
    write_json(tmp_path / "in" / "0.json", first)
    done: list[ab.StepDone] = []
    pipeline = ab.run(flow, directory=tmp_path / "state", isolate_workers=True, watch=done.append)
    until(pipeline, lambda status: status.step >= 1)
    place = pipeline.query("select _worker, _bin from kept where who = 'giant'").to_pylist()[0]
    pipeline.scale(remove=[place["_worker"]])
    until(pipeline, lambda status: status.rescale is None)
    history = pipeline.scale_history()
    write_json(tmp_path / "in" / "1.json", [{"who": "giant", "n": 9}])
    until(pipeline, lambda status: status.rows >= len(first) + 1)
    pipeline.shutdown()
    rows = [tuple(row.values()) for row in out.rows()]
    assert [row for row in rows if row[0] == "giant"] == [("giant", LARGE, 7, 7)] * 2
    (moved,) = (each.moved for each in history)
    print(
        f"\n{moved.copied_bytes / MIB:.1f} MiB copied in {moved.steps} steps, "
        f"{max(each.homes.moved_bytes for each in done) / MIB:.1f} MiB at most in one of them; "
        f"the longest took {moved.longest_seconds:.2f} s"
    )
    assert moved.copied_bytes > LARGE
    assert sum(each.homes.misses for each in done) == 0
    assert max(each.homes.moved_bytes for each in done) < LARGE / 2, "it is copied in parts"
