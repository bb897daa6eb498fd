"""Finding what falls due: a thousand rows of many that wait, and of few.

Without Spark: the state of an operator is written once, and opened anew for every search, as the
task of a step does it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList
from anabranch.runs.changes import KeyChanges
from anabranch.runs.region_state import RegionState
from benchmarks.child import Spec, case
from benchmarks.measure import Batch, Fact, Outcome

BINS = 256
DUE = 1_000
"""How many rows fall due at each time."""
ROWS_PER_RUN = 1_000_000
SEARCHES = 40
LAYOUT = Layout(
    pa.schema([("key", pa.int64())]), pa.schema([("n", pa.int64())]), expires=True, dues=True
)


def measure(spec: Spec) -> Outcome:
    """Search in both states, in turn."""
    started = time.perf_counter()
    stores = {}
    for name in ("many", "few"):
        waiting = spec.number(name)
        root = Path(spec.work) / name
        root.mkdir(parents=True)
        stores[name] = (root, write(root, waiting), waiting // DUE)
    found: dict[str, list[float]] = {"many": [], "few": []}
    for number in range(SEARCHES):
        for name, (root, runs, times) in stores.items():
            found[name].append(search(root, runs, number % times))
    info: dict[str, Fact] = {}
    for name, seconds in found.items():
        info[f"{name}: waiting"] = spec.number(name)
        info[f"{name}: median"] = statistics.median(seconds)
    batches = tuple(Batch(DUE, seconds) for seconds in found["many"])
    return Outcome(batches, time.perf_counter() - started, False, info)


def write(root: Path, waiting: int) -> RunList:
    """Rows that fall due at times 1, 2 and so on, a thousand at each, all over the keys."""
    chance = np.random.default_rng(waiting)
    due = chance.permutation(waiting) // DUE + 1
    hashes = np.unique(chance.integers(0, 2**64, waiting + waiting // 1000, dtype=np.uint64))
    hashes = chance.permutation(hashes)[:waiting]
    runs: RunList = ()
    live = np.zeros(BINS, dtype=np.int64)
    for start in range(0, waiting, ROWS_PER_RUN):
        part = slice(start, min(start + ROWS_PER_RUN, waiting))
        key, rows = hashes[part].view(np.int64), part.stop - start
        changed = KeyChanges(
            hashes[part],
            pa.table({"key": key}),
            pa.table({"n": key}),
            np.zeros(rows, dtype=np.bool_),
            expiry=pa.array(due[part]),
        )
        state = RegionState("due", LAYOUT, runs, root, BINS, BinSet.every(BINS), live)
        fresh = np.zeros(rows, dtype=np.bool_)
        written = state.write(changed, f"run/{start}", found=fresh, now_ns=0)
        assert written is not None
        runs, live = written.runs, written.live
    return runs


def search(root: Path, runs: RunList, since: int) -> float:
    """The seconds that it takes to open the state and to read what falls due at the next time."""
    live = np.zeros(BINS, dtype=np.int64)
    started = time.perf_counter()
    state = RegionState("due", LAYOUT, runs, root, BINS, BinSet.every(BINS), live)
    rows = sum(batch.num_rows for batch in state.due(since, since + 1))
    seconds = time.perf_counter() - started
    if rows != DUE:
        raise AssertionError(f"{rows} rows fell due at {since + 1}, not {DUE}")
    return seconds


if __name__ == "__main__":
    case(measure)
