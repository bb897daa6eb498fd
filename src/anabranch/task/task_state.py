"""Operator state as a task reads it: at the step's clock or frontier, with timing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.records.bins import BinSet, Hashes, Mask
from anabranch.runs.entries import Entries
from anabranch.runs.keys import Index
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups, LookupResult, group_keys
from anabranch.runs.sorted_rows import hash_column
from anabranch.task.task_times import LOOKUP, TaskTimes

KEYS_AT_ONCE = 1 << 16
"""About how many keys are ended at a time."""


@dataclass(slots=True)
class TimedState:
    """An operator's state in a step; ``times`` get the time of look-ups.

    ``now_ns`` is the clock of the step, ``expires_at`` what rows expire by: that clock, or the
    operator's frontier.
    """

    state: RegionState
    now_ns: int
    expires_at: int
    step: int
    times: TaskTimes

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        """Whether each key has state, and its columns."""
        with self.times.spent(LOOKUP):
            return self.state.lookup(hashes, keys, self.expires_at)

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """The state of the keys, with expiry."""
        return self.find_at(hashes, keys, self.expires_at)

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        """All entries of the keys."""
        return self.entries_at(hashes, keys, self.expires_at)

    def find_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> LookupResult:
        """The state of the keys at another frontier."""
        with self.times.spent(LOOKUP):
            return self.state.find(hashes, keys, frontier)

    def entries_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> Entries:
        """All entries of the keys at another frontier."""
        with self.times.spent(LOOKUP):
            return self.state.entries(hashes, keys, frontier)

    def due(self, since: int, until: int) -> Iterator[pa.RecordBatch]:
        """The rows that fall due, some at a time."""
        return self.state.due(since, until)


def shares_of_keys(live: Index) -> Iterator[BinSet]:
    """Split the bins into parts of about ``KEYS_AT_ONCE`` keys."""
    first, held = 0, 0
    for last, count in enumerate(live.tolist(), start=1):
        held += count
        if held >= KEYS_AT_ONCE or last == len(live):
            yield BinSet.of(range(first, last))
            first, held = last, 0


def all_keys(states: Sequence[tuple[RegionState, int]], bins: BinSet) -> Groups | None:
    """The keys with an entry in any of the states, each at its clock; None if there are none."""
    names = states[0][0].layout.keys.names
    tables = [state.keys(clock, bins) for state, clock in states]
    table = pa.concat_tables(tables).combine_chunks()
    if not table.num_rows:
        return None
    (batch,) = table.to_batches()
    named = batch.select(range(1, len(names) + 1)).rename_columns(names)
    return group_keys(hash_column(batch), named)
