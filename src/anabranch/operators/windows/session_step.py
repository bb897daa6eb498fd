"""One step of an operator over sessions.

State has a row for each open session of each key, which falls due at the session's end. Rows that
notifications upstream made extend and merge sessions first. Then sessions close whose end the
frontier has passed, and the step's own rows extend and merge those that stay open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.rows import Rows, StateChanges, concat_some
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.arrivals import (
    fired_rows,
    ordered_rows,
    part_rows,
    times_of,
    too_far,
)
from anabranch.operators.windows.contents import Contents, KeyedWindows, time_column
from anabranch.operators.windows.open_sessions import NEW, OpenSessions, SessionRows
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.shares import KeptRows, concat_kept, due_shares, replace_rows
from anabranch.operators.windows.slots import ABSENT, key_places
from anabranch.operators.windows.window_rows import closed_rows
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges, identity
from anabranch.runs.rows import Groups, group_keys

START = "start"


@dataclass(frozen=True, slots=True)
class SessionStep:
    """What a step needs to know. ``keys`` are the names of the key columns."""

    operator: str
    sessions: SessionGap
    contents: Contents
    keys: list[str]
    state: TimedEntries
    frontier: FrontierMove

    def run(self, given: Rows | None) -> TimedResult:
        """Process the step: fired rows, closing sessions, then the other rows."""
        rows, late = ordered_rows(given), None
        if rows is not None:
            rows, late = part_rows(rows, too_far(rows))
        if rows is None:
            return TimedResult(concat_some(list(self._close(None, None))), late)
        return self._run(rows, late)

    def _run(self, rows: Rows, too_far: Rows | None) -> TimedResult:
        assert rows.hashes is not None
        assert rows.keys is not None
        groups = group_keys(rows.hashes, rows.keys)
        arrived = SessionRows(
            rows.values, np.arange(len(rows)), groups.group_of_row, times_of(rows)
        )
        fired = fired_rows(rows)
        since, until = self.frontier.since, self.frontier.until
        held = OpenSessions.of(
            self.state.entries_at(groups.hashes, groups.keys, since if fired.any() else until)
        )
        late = np.zeros(len(rows), dtype=np.bool_)
        sessions = held
        output: list[Rows] = []
        if fired.any():
            sessions, late[fired] = self._absorb(sessions, arrived.take(fired), since)
            closing = sessions.ends <= until
            output += self._close(groups, sessions.take(closing))
            sessions = sessions.take(~closing)
        else:
            output += self._close(None, None)
        if not fired.all():
            sessions, late[~fired] = self._absorb(sessions, arrived.take(~fired), until)
        changes = self._changes(groups, held, sessions)
        _, judged = part_rows(rows, late)
        return TimedResult(
            concat_some(output),
            concat_some([part for part in (judged, too_far) if part is not None]),
            {} if changes is None else {self.operator: changes},
        )

    def _absorb(
        self, sessions: OpenSessions, rows: SessionRows, frontier: int
    ) -> tuple[OpenSessions, Mask]:
        return sessions.absorb(self.contents, self.sessions.gap, rows, frontier)

    def _close(self, groups: Groups | None, made: OpenSessions | None) -> Iterator[Rows]:
        """The rows of sessions that close. Those of the keys ``groups`` are ``made``."""
        since, until = self.frontier.since, self.frontier.until
        rows = None if groups is None or made is None else made.rows(groups)

        def combine(share: KeptRows, mine: KeptRows) -> KeptRows:
            assert groups is not None
            place = key_places(groups.hashes, groups.keys, share.hashes, share.keys)
            others = np.flatnonzero(place == ABSENT)
            return replace_rows(share.take(others), mine)

        for share in due_shares(self.state, self.keys, since, until, rows, combine):
            windows = KeyedWindows(share.hashes, share.keys, share.starts, share.dues, share.state)
            if len(windows):
                yield closed_rows(self.operator, self.contents, windows)

    def _changes(
        self, groups: Groups, held: OpenSessions, sessions: OpenSessions
    ) -> StateChanges | None:
        """The changes from the sessions before the step to those after it."""
        touched = sessions.take(sessions.touched)
        # What ended by the frontier is gone by itself.
        is_absorbed = held.ends > self.frontier.until
        is_absorbed[sessions.origins[sessions.origins != NEW]] = False
        absorbed = held.take(is_absorbed)
        if not len(touched) and not len(absorbed):
            return None
        rows = concat_kept(touched.rows(groups), absorbed.rows(groups))
        gone = np.arange(len(rows)) >= len(touched)
        changed = KeyChanges(
            rows.hashes,
            rows.keys,
            pa.RecordBatch.from_arrays(rows.state, schema=self.contents.state),
            gone,
            pa.RecordBatch.from_arrays([time_column(rows.starts)], names=[START]),
            pa.array(rows.dues),
        )
        return StateChanges(changed, np.append(self._present(groups, touched), gone[gone]))

    def _present(self, groups: Groups, touched: OpenSessions) -> Mask:
        """Which sessions have a row in the state, under their key and start.

        That of a session that has closed may still be there. It has the start of a new one only if
        a row came after its own time had ended, for a session that others keep open.
        """
        present: Mask = touched.origins != NEW
        ended = touched.starts + self.sessions.gap <= self.frontier.until
        unsure = np.flatnonzero(ended & ~present)
        if len(unsure):
            rows = touched.rows(groups).take(unsure)
            starts = pa.RecordBatch.from_arrays([time_column(rows.starts)], names=[START])
            found = self.state.find(rows.hashes, identity(rows.keys, starts))
            present[unsure] = found.present
        return present
