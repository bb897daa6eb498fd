"""The state of operators as a task works with it: looked up under the step's clock, key by key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from anabranch.records.bins import BinSet, Hashes, Mask
from anabranch.runs.entries import Entries
from anabranch.runs.keys import Index
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups, LookupResult, group_keys
from anabranch.runs.sorted_rows import hash_column

KEYS_AT_ONCE = 1 << 16
"""About how many keys are told of the end of the input at a time."""


class TimedState:
    """An operator's state at the clock of the step; measures the time spent looking up."""

    def __init__(
        self, state: RegionState, now_ns: int, step: int, seconds: dict[str, float]
    ) -> None:
        """What is spent goes to ``seconds``, and is in ``spent`` too."""
        self._state = state
        self._now_ns = now_ns
        self._step = step
        self._seconds = seconds
        self.spent = 0.0

    @property
    def now_ns(self) -> int:
        """The clock of the step."""
        return self._now_ns

    @property
    def step(self) -> int:
        """The number of the step."""
        return self._step

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        """Whether each key has state, and the columns of it."""
        with self._timed():
            return self._state.lookup(hashes, keys, self._now_ns)

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """The same, with expiry."""
        with self._timed():
            return self._state.find(hashes, keys, self._now_ns)

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        """All entries of the keys."""
        with self._timed():
            return self._state.entries(hashes, keys, self._now_ns)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.spent += spent
            self._seconds["lookup"] += spent


def shares_of_keys(live: Index) -> Iterator[BinSet]:
    """Parts of the bins with about so many keys that they may be objects at once."""
    first, held = 0, 0
    for last, count in enumerate(live.tolist(), start=1):
        held += count
        if held >= KEYS_AT_ONCE or last == len(live):
            yield BinSet.from_mask((np.arange(len(live)) >= first) & (np.arange(len(live)) < last))
            first, held = last, 0


def all_keys(states: Sequence[RegionState], now_ns: int, bins: BinSet) -> Groups | None:
    """The keys that have something in any of the states; None where there are none."""
    keys = states[0].layout.keys
    table = pa.concat_tables([state.keys(now_ns, bins) for state in states]).combine_chunks()
    if not table.num_rows:
        return None
    (batch,) = table.to_batches()
    named = batch.select(range(1, len(keys) + 1)).rename_columns(keys.names)
    return group_keys(hash_column(batch), named)
