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
from anabranch.records.bins import Mask
from anabranch.runs.entries import Entries
from anabranch.runs.rows import Groups
from anabranch.runs.sort_pairs import sort_pairs

NEW = -1
"""The origin of a session that none of the held ones has become."""


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

    ``keys`` are numbers of keys among those that the step touches. ``origins`` are the places of
    the held sessions with the same key and start, ``NEW`` for sessions without one.
    """

    keys: Int64s
    starts: Int64s
    ends: Int64s
    state: State
    touched: Mask
    origins: Int64s

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
            np.arange(count),
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
            self.origins[places],
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
        origins = np.full(count, NEW)
        if held:
            # Both lists are sorted by key and start, so this does not descend.
            into = merged.session_of[:held]
            first = np.flatnonzero(begins(into))
            before = put_contents(
                before, into[first], fold_contents(contents, self.state, first, held)
            )
            touched[into[self.touched]] = True
            same = self.starts[first] == merged.starts[into[first]]
            origins[into[first[same]]] = self.origins[first[same]]
        into = merged.session_of[held:]
        order = sort_pairs(into, np.arange(len(into)))
        first = np.flatnonzero(begins(into[order]))
        grown = into[order][first]
        added = contents.reduce(rows.values, rows.places[order], first)
        after = contents.merge(take_contents(before, grown), added)
        touched[grown] = True
        state = put_contents(before, grown, after)
        sessions = OpenSessions(merged.keys, merged.starts, merged.ends, state, touched, origins)
        return sessions, late

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
