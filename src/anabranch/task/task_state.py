"""Operator state as a task reads it: at the step's clock, with timing."""

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
"""About how many keys are ended at a time."""


class TimedState:
    """An operator's state at the clock of the step; measures the time of look-ups."""

    def __init__(
        self, state: RegionState, now_ns: int, step: int, seconds: dict[str, float]
    ) -> None:
        """Add the time of look-ups to ``seconds["lookup"]`` and to ``spent``."""
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
        """Whether each key has state, and its columns."""
        with self._timed():
            return self._state.lookup(hashes, keys, self._now_ns)

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """The state of the keys, with expiry."""
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
    """Split the bins into parts of about ``KEYS_AT_ONCE`` keys."""
    first, held = 0, 0
    for last, count in enumerate(live.tolist(), start=1):
        held += count
        if held >= KEYS_AT_ONCE or last == len(live):
            yield BinSet.from_mask((np.arange(len(live)) >= first) & (np.arange(len(live)) < last))
            first, held = last, 0


def all_keys(states: Sequence[RegionState], now_ns: int, bins: BinSet) -> Groups | None:
    """The keys with an entry in any of the states; None if there are none."""
    keys = states[0].layout.keys
    table = pa.concat_tables([state.keys(now_ns, bins) for state in states]).combine_chunks()
    if not table.num_rows:
        return None
    (batch,) = table.to_batches()
    named = batch.select(range(1, len(keys) + 1)).rename_columns(keys.names)
    return group_keys(hash_column(batch), named)
