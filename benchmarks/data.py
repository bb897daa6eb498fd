"""The input: Parquet files, written once, read by every system through its own file source.

A batch is two files, so that both of a small machine's cores can read. Times of change are set a
second apart: every system then finds the files in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.sizes import Held, Stream

FILES_PER_BATCH = 2
SCHEMA = "key bigint, amount bigint, price double"

EPOCH = 1_600_000_000
_SEED = 20_240_601

Keys = npt.NDArray[np.int64]


def write_stream(directory: Path, stream: Stream) -> None:
    """Write a stream's batches, unless they are there."""
    if directory.exists():
        return
    chance = np.random.default_rng([_SEED, stream.rows, stream.keys])
    drawn = (chance.integers(0, stream.keys, stream.rows) for _ in range(stream.batches))
    _write(directory, drawn, chance)


def write_held(directory: Path, held: Held, keys: int) -> None:
    """Write a base of so many keys, then batches that each change equally many of them."""
    if directory.exists():
        return
    chance = np.random.default_rng([_SEED, keys])
    _write(directory, _base_and_batches(held, keys, chance), chance)


def load_batches(held: Held, keys: int) -> int:
    """How many batches load the base."""
    return -(-keys // held.load)


def _base_and_batches(held: Held, keys: int, chance: np.random.Generator) -> Iterator[Keys]:
    every = chance.permutation(keys)
    yield from np.array_split(every, load_batches(held, keys))
    for _ in range(held.warm + held.most):
        yield _distinct(keys, held.rows, chance)


def _distinct(keys: int, rows: int, chance: np.random.Generator) -> Keys:
    """So many different keys, in no order."""
    if keys <= 4 * rows:
        return chance.permutation(keys)[:rows]
    found = np.unique(chance.integers(0, keys, rows + rows * rows // keys + 1000))
    return chance.permutation(found)[:rows]


def _write(directory: Path, batches: Iterator[Keys], chance: np.random.Generator) -> None:
    aside = directory.with_name(f".{directory.name}")
    aside.mkdir(parents=True)
    for number, keys in enumerate(batches):
        for half, part in enumerate(np.array_split(keys, FILES_PER_BATCH)):
            path = aside / f"{number:05d}-{half}.parquet"
            pq.write_table(_table(part, chance), path, compression="snappy")
            when = EPOCH + number * FILES_PER_BATCH + half
            os.utime(path, (when, when))
    aside.rename(directory)


def _table(keys: Keys, chance: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "key": keys,
            "amount": chance.integers(1, 1000, len(keys)),
            "price": chance.random(len(keys)) * 100,
        }
    )


def sum_of_amounts(directory: Path, batches: int) -> int:
    """The sum of ``amount`` over the first so many batches: what a running total must come to."""
    total = 0
    for path in sorted(directory.glob("*.parquet"))[: batches * FILES_PER_BATCH]:
        column = pq.read_table(path, columns=["amount"]).column("amount")
        total += int(column.to_numpy().sum())
    return total
