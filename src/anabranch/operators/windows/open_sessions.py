"""The open sessions of the keys that a step touches, with their contents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s, begins
from anabranch.operators.windows.contents import (
    Contents,
    fold_contents,
    no_contents,
    put_contents,
    take_contents,
    time_numbers,
)
from anabranch.operators.windows.sessions import Sessions, merge_sessions
from anabranch.operators.windows.shares import KeptRows
from anabranch.operators.windows.slots import sort_pairs
from anabranch.records.bins import Mask
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups


@dataclass(frozen=True, slots=True, eq=False)
class SessionRows:
    """Rows that arrive at sessions: the number of each row's key, its time, and its place.

    ``values`` are the columns of all rows of the step; places are those in it, in order.
    """

    values: pa.Table
    places: Int64s
    keys: Int64s
    times: Int64s

    def take(self, chosen: Mask) -> SessionRows:
        """The chosen rows."""
        return SessionRows(self.values, self.places[chosen], self.keys[chosen], self.times[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class OpenSessions:
    """Sessions sorted by key and start; ``touched`` says which of them the step has changed.

    ``keys`` are numbers of keys among those that the step touches.
    """

    keys: Int64s
    starts: Int64s
    ends: Int64s
    state: State
    touched: Mask

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self.keys)

    @classmethod
    def of(cls, held: Entries) -> OpenSessions:
        """The sessions that state holds."""
        assert held.expiry is not None
        count = held.rows.num_rows
        return cls(
            held.places,
            time_numbers(held.subkeys.column(0)),
            held.expiry.to_numpy(zero_copy_only=False),
            held.values.columns,
            np.zeros(count, dtype=np.bool_),
        )

    def take(self, chosen: Mask) -> OpenSessions:
        """The chosen sessions."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        return OpenSessions(
            self.keys[places],
            self.starts[places],
            self.ends[places],
            take_contents(self.state, places),
            self.touched[places],
        )

    def absorb(
        self, contents: Contents, gap: int, rows: SessionRows, frontier: int
    ) -> tuple[OpenSessions, Mask]:
        """The sessions with rows added, and which of the rows are late.

        A row is late if the session that it would be in has ended at the frontier: then neither an
        open session nor another row of the step keeps it open.
        """
        late = self._ended(gap, rows, frontier)
        if late.all():
            return self, late
        if late.any():
            rows = rows.take(~late)
        merged = self._with(gap, rows)
        count, held = len(merged), len(self)
        before = no_contents(contents.state, count)
        touched = np.zeros(count, dtype=np.bool_)
        if held:
            # Both lists are sorted by key and start, so this does not descend.
            into = merged.session_of[:held]
            first = np.flatnonzero(begins(into))
            before = put_contents(
                before, into[first], fold_contents(contents, self.state, first, held)
            )
            np.logical_or.at(touched, into, self.touched)
        into = merged.session_of[held:]
        order = sort_pairs(into, np.arange(len(into)))
        first = np.flatnonzero(begins(into[order]))
        grown = into[order][first]
        added = contents.reduce(rows.values, rows.places[order], first)
        after = contents.merge(take_contents(before, grown), added)
        touched[grown] = True
        state = put_contents(before, grown, after)
        return OpenSessions(merged.keys, merged.starts, merged.ends, state, touched), late

    def _ended(self, gap: int, rows: SessionRows, frontier: int) -> Mask:
        """Which rows would be in a session that has ended."""
        if (rows.times + gap > frontier).all():
            return np.zeros(len(rows.times), dtype=np.bool_)
        merged = self._with(gap, rows)
        ended: Mask = merged.ends[merged.session_of[len(self) :]] <= frontier
        return ended

    def _with(self, gap: int, rows: SessionRows) -> Sessions:
        return merge_sessions(
            np.concatenate([self.keys, rows.keys]),
            np.concatenate([self.starts, rows.times]),
            np.concatenate([self.ends, rows.times + gap]),
        )

    def rows(self, groups: Groups) -> KeptRows:
        """The sessions as rows of state."""
        return KeptRows(
            groups.hashes[self.keys],
            groups.keys.take(pa.array(self.keys)),
            self.starts,
            self.ends,
            self.state,
        )

    def among(self, others: OpenSessions) -> Mask:
        """Which sessions have the key and start of one of the others."""
        keys = np.concatenate([others.keys, self.keys])
        starts = np.concatenate([others.starts, self.starts])
        order = sort_pairs(keys, starts)
        # Neither list has duplicates, and the order is stable: one of these follows one of others.
        known = np.zeros(len(order), dtype=np.bool_)
        known[order] = ~begins(keys[order], starts[order])
        return known[len(others) :]
