"""Runs an operator over the rows that notifications made, then over the other rows of a step.

Both have to be apart if results could mix them: rows that notifications made come before the
frontier, and are never late. The second run sees the state that the first has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import (
    KeyedEntries,
    Rows,
    StateChanges,
    concat_batches,
    concat_changes,
)
from anabranch.records.bins import Hashes, Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.entries import Entries
from anabranch.runs.keys import one_batch, one_chunk, to_mask
from anabranch.runs.rows import LookupResult, group_keys

Run: TypeAlias = Callable[[Rows, KeyedEntries], tuple[Rows, StateChanges | None]]
"""Runs an operator over rows and its state."""


def run_fired_first(
    run: Run,
    fired: Rows | None,
    data: Rows | None,
    fired_state: KeyedEntries,
    data_state: KeyedEntries,
    frontier: int | None = None,
) -> tuple[Rows | None, StateChanges | None]:
    """Run an operator over fired rows, then over data rows, each with the state as it is then.

    If state expires by event time, ``frontier`` is the one at which data rows read it.
    """
    if fired is None:
        return (None, None) if data is None else run(data, data_state)
    first, before = run(fired, fired_state)
    if data is None:
        return first, before
    overlaid = data_state if before is None else OverlaidState(data_state, before, frontier)
    second, after = run(data, overlaid)
    return concat_batches([first, second]), _newest(before, after)


@dataclass(frozen=True, slots=True)
class OverlaidState:
    """A state with changes that have not been written. It has no entries.

    With ``frontier``, changes that have expired by then do not count.
    """

    under: KeyedEntries
    changes: StateChanges
    frontier: int | None = None

    @property
    def now_ns(self) -> int:
        """The clock of the step."""
        return self.under.now_ns

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.under.step

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        """Whether each key has state, and the state's columns."""
        held = self.find(hashes, keys)
        return held.found, held.values

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """Look up keys; ``present`` is that of the written state, which a write replaces."""
        held, changed = self.under.find(hashes, keys), self.changes.changed
        places = _places(changed, hashes, keys)
        over = places >= 0
        if not over.any():
            return held
        found = held.found.copy()
        found[over] = self._alive[places[over]]
        values = pa.concat_batches([held.values, _as(one_batch(changed.values), held.values)])
        rows = np.where(over, places + len(hashes), np.arange(len(hashes)))
        chosen = values.take(pa.array(rows, mask=~found))
        return replace(held, found=found, values=chosen)

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        """Not needed: operators with entries see the changes of a step themselves."""
        raise NotImplementedError

    @property
    def _alive(self) -> Mask:
        """Which of the changed keys have state, at the frontier."""
        changed = self.changes.changed
        alive = ~changed.tombstone
        if self.frontier is not None and changed.expiry is not None:
            alive &= to_mask(pc.greater(one_chunk(changed.expiry), self.frontier))
        return alive


def _places(changed: KeyChanges, hashes: Hashes, keys: pa.RecordBatch) -> Int64s:
    """The place of each key among the changed keys; -1 if it is not among them."""
    both = [pa.Table.from_batches([one_batch(changed.keys)]), pa.Table.from_batches([keys])]
    table = pa.concat_tables([both[0].cast(both[1].schema), both[1]])
    groups = group_keys(np.concatenate([changed.hashes, hashes]), table)
    place_of = np.full(len(groups), -1, dtype=np.int64)
    place_of[groups.group_of_row[: len(changed)]] = np.arange(len(changed))
    found: Int64s = place_of[groups.group_of_row[len(changed) :]]
    return found


def _as(values: pa.RecordBatch, wanted: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(values.columns, names=wanted.schema.names).cast(wanted.schema)


def _newest(before: StateChanges | None, after: StateChanges | None) -> StateChanges | None:
    """The changes of both runs, where the later one counts."""
    if before is None or after is None:
        return after or before
    later = after.changed
    kept = np.flatnonzero(_places(later, before.changed.hashes, one_batch(before.changed.keys)) < 0)
    return concat_changes([_take(before, kept), after])


def _take(changes: StateChanges, places: Int64s) -> StateChanges:
    changed, some = changes.changed, pa.array(places)
    taken = KeyChanges(
        changed.hashes[places],
        changed.keys.take(some),
        changed.values.take(some),
        changed.tombstone[places],
        None if changed.subkeys is None else changed.subkeys.take(some),
        None if changed.expiry is None else changed.expiry.take(some),
    )
    return StateChanges(taken, None if changes.found is None else changes.found[places])
