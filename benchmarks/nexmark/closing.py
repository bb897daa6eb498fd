"""How long it takes from the row that closes a window to the window's published result.

Counts per auction and window of ten seconds, over batches that are a window long each, written as
Parquet. A window is closed by a row of the next batch, four seconds of event time after its end;
its result comes with the batch after that one. The time is that from the beginning of the closing
batch to the end of the one that publishes: what lies between is all the system's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.measure import Batch
from examples.nexmark.generator import Nexmark

WINDOW_SECONDS = 10
_BASE = Nexmark().base / 1_000_000


def window_ends(files: Iterable[Path]) -> set[int]:
    """The windows in some files of output, by their number from the first event on."""
    found: set[int] = set()
    for path in files:
        ends: list[datetime] = pq.read_table(path, columns=["window_end"]).column(0).to_pylist()
        found |= {round((end.timestamp() - _BASE) / WINDOW_SECONDS) for end in set(ends)}
    return found


def waits(
    windows: Mapping[int, set[int]], began: Mapping[int, float], published: Mapping[int, float]
) -> tuple[Batch, ...]:
    """The time that each window took; ``windows`` are those that each batch published.

    Batches and windows are numbered from 1: the window of batch n is closed in batch n + 1. Windows
    that only the end of the input closes are left out.
    """
    taken = {
        window: published[batch] - began[window + 1]
        for batch, closed in windows.items()
        for window in closed
        if window + 1 in began and batch in published
    }
    return tuple(Batch(1, seconds) for _, seconds in sorted(taken.items()))
