"""What bound handles share: the keys of the step, the cursor, and how values become columns.

All keys of the step are looked up at once, on the first access. The changes of each handle become
one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.codec import StateCodec
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import KeyedEntries, expiry_times
from anabranch.operators.timed import TimedEntries
from anabranch.records.bins import Mask
from anabranch.records.times import EARLIEST
from anabranch.runs.changes import KeyChanges
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups, LookupResult


@dataclass(slots=True)
class Cursor:
    """What is being processed, shared by all handles and the timers.

    ``place`` is that of the key. ``time`` is the event time of the rows or of the timer, and
    ``frontier`` the event time that has been reached.
    """

    place: int = 0
    time: int = EARLIEST
    frontier: int = EARLIEST


@dataclass(frozen=True, slots=True)
class HandleContext:
    """What a bound handle needs: its state, the step's keys, the cursor, codec and time-to-live."""

    view: KeyedEntries
    groups: Groups
    cursor: Cursor
    codec: StateCodec
    ttl_ns: int | None

    def changes(
        self,
        places: Int64s,
        values: Sequence[Any],
        gone: Mask,
        subkeys: pa.RecordBatch | pa.Table | None = None,
        expiry: pa.Array | None = None,
    ) -> KeyChanges:
        """The changes that set these values, or delete them, for the keys at these places.

        Without ``expiry``, they expire by the clock of the step.
        """
        if expiry is None:
            expiry = expiry_times(len(places), self.view.now_ns, self.ttl_ns)
        return KeyChanges(
            self.groups.hashes[places],
            self.groups.keys.take(pa.array(places)),
            pa.RecordBatch.from_arrays(self.codec.encode(values), schema=self.codec.schema),
            gone,
            subkeys,
            expiry,
        )

    def find(self) -> LookupResult:
        """The values of all keys."""
        return self.view.find(self.groups.hashes, self.groups.keys)

    def entries(self) -> Entries:
        """All entries of all keys."""
        return self.view.entries(self.groups.hashes, self.groups.keys)

    def decode(self, values: pa.RecordBatch) -> list[Any]:
        """The values of entries."""
        return self.codec.decode(values, np.ones(values.num_rows, np.bool_))

    def restore(self, values: list[Any], entries: Entries, place: int) -> None:
        """Replace a key's values by those of its entries: they may have been changed in place."""
        first, last = entries.offsets[place : place + 2].tolist()
        values[first:last] = self.decode(entries.values.slice(first, last - first))

    def normalizer(self) -> Callable[[Any], Any]:
        """Converts a value just set to the form that later steps read."""
        return self.codec.normalizer() or _unchanged


@dataclass(frozen=True, slots=True)
class EventContext(HandleContext):
    """The same for state that expires by event time.

    It is read at the frontier before the step, ``since``, and has expired at the cursor's.
    """

    timed_view: TimedEntries
    since: int

    @classmethod
    def of(cls, shared: HandleContext, view: TimedEntries, since: int) -> EventContext:
        """The context of a handle that reads ``view`` at the frontier ``since``."""
        parts = (shared.view, shared.groups, shared.cursor, shared.codec, shared.ttl_ns)
        return cls(*parts, view, since)

    @property
    def lives_until(self) -> int:
        """When what is written now expires: not before the frontier moves on."""
        assert self.ttl_ns is not None
        return max(self.cursor.time + self.ttl_ns // 1000, self.cursor.frontier + 1)

    def find(self) -> LookupResult:
        """The values of all keys before the step."""
        return self.timed_view.find_at(self.groups.hashes, self.groups.keys, self.since)

    def entries(self) -> Entries:
        """All entries of all keys before the step."""
        return self.timed_view.entries_at(self.groups.hashes, self.groups.keys, self.since)


def _unchanged(value: Any) -> Any:
    return value
