"""``aggregate``, ``stateful_map`` and ``stateful_batches`` where they have to do with event time.

Their state may expire by it, and a column may give the times of their output. Rows that are further
ahead than their stream allows are late for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.aggregate import Aggregate
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.fired_first import run_fired_first
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timers.step_parts import split_fired
from anabranch.records.bins import Hashes, Mask
from anabranch.runs.due import NEVER
from anabranch.runs.entries import Entries
from anabranch.runs.rows import LookupResult

SingleState: TypeAlias = Aggregate | StatefulMap | StatefulBatches
"""The operators with one state per key."""


@dataclass(frozen=True, slots=True)
class StateAtFrontier:
    """A state that expires by event time, at one frontier."""

    state: TimedEntries
    frontier: int

    @property
    def now_ns(self) -> int:
        """The clock of the step."""
        return self.state.now_ns

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.state.step

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        """Whether each key has state, and the state's columns."""
        held = self.find(hashes, keys)
        return held.found, held.values

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        """Look up keys at the frontier."""
        return self.state.find_at(hashes, keys, self.frontier)

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        """All entries of keys at the frontier."""
        return self.state.entries_at(hashes, keys, self.frontier)


@dataclass(frozen=True, slots=True)
class TimedKind:
    """An operator with one state per key that has to do with event time."""

    operator: SingleState

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    def step(
        self,
        rows: Rows | None,
        frontier: FrontierMove,
        states: Mapping[str, TimedEntries],
        *,
        dead: list[RowFailure] | None = None,
    ) -> TimedResult:
        """Process a step: fired rows at the frontier before, then the others at that of the step.

        With ``dead``, rows for which the user's function fails are added there and skipped.
        """
        operator, state = self.operator, states[self.name]
        fired, data, late = split_fired(rows, timed=True, ends=False)

        def run(some: Rows, state: KeyedEntries) -> tuple[Rows, StateChanges | None]:
            output, changes = run_single(operator, some, state, dead)
            reached = frontier.until if some is data else frontier.since
            return output, _lasting(changes, reached) if by_event else changes

        by_event = operator.ttl_ns is not None and operator.clock == "event"
        if by_event:
            before, until = StateAtFrontier(state, frontier.since), frontier.until
            after = StateAtFrontier(state, until)
            output, changes = run_fired_first(run, fired, data, before, after, until)
        else:
            output, changes = run_fired_first(run, fired, data, state, state)
        return TimedResult(output, late, {} if changes is None else {self.name: changes})

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """Nothing is made of state that expires."""
        return np.full(len(dues), NEVER, dtype=np.int64)


def run_single(
    operator: SingleState, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None
) -> tuple[Rows, StateChanges | None]:
    """Run an operator with one state per key over its rows."""
    if isinstance(operator, Aggregate):
        return operator.run(rows, state)
    return operator.run(rows, state, dead)


def run_mixed(
    operator: SingleState, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None
) -> tuple[Rows, StateChanges | None]:
    """The same over rows of which notifications made some."""
    fired, data, _ = split_fired(rows, timed=False, ends=False)
    output, changes = run_fired_first(
        lambda some, at: run_single(operator, some, at, dead), fired, data, state, state
    )
    assert output is not None
    return output, changes


def _lasting(changes: StateChanges | None, frontier: int) -> StateChanges | None:
    """The changes; what was written at a frontier does not expire before it moves on."""
    if changes is None:
        return None
    expiry = pc.max_element_wise(changes.changed.expiry, pa.scalar(frontier + 1, pa.int64()))
    return replace(changes, changed=replace(changes.changed, expiry=expiry))
