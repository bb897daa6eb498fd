"""Nexmark's events as Parquet files: a directory for people, one for auctions, one for bids.

A batch is two files in each of them, so that a system reads only what its query is about.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import EPOCH, FILES_PER_BATCH
from benchmarks.sizes import EventStream
from examples.nexmark.generator import (
    AUCTION,
    BID,
    PERSON,
    Int64s,
    Mask,
    Nexmark,
    auctions,
    bids,
    is_auction,
    is_bid,
    is_person,
    people,
)

Make = Callable[[Nexmark, Int64s], pa.Table]
KINDS: dict[str, tuple[Callable[[Int64s], Mask], Make]] = {
    "person": (is_person, people),
    "auction": (is_auction, auctions),
    "bid": (is_bid, bids),
}
SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}


def write_events(directory: Path, stream: EventStream) -> None:
    """Write the batches of a stream, unless they are there."""
    if directory.exists():
        return
    aside = directory.with_name(f".{directory.name}")
    settings = Nexmark(rate=stream.rate)
    for kind, (mine, make) in KINDS.items():
        (aside / kind).mkdir(parents=True)
        for number in range(stream.batches):
            events = np.arange(number * stream.events, (number + 1) * stream.events)
            for half, part in enumerate(np.array_split(events[mine(events)], FILES_PER_BATCH)):
                path = aside / kind / f"{number:05d}-{half}.parquet"
                pq.write_table(make(settings, part), path, compression="snappy")
                when = EPOCH + number * FILES_PER_BATCH + half
                os.utime(path, (when, when))
    aside.rename(directory)
