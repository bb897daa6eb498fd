"""Operators over event time with their states in real files, step after step, on many workers.

It knows nothing of windows: any ``TimedOperator`` with its ``StateShape``s will do. Each worker has
some bins. It opens its states as the step before left them, runs ``step`` with the rows of its bins
and writes with the new frontier as clock. The harness checks on the way what must hold for every
operator: that the counts of live rows are exact, that no output is earlier than what the operator
held back, and that fired rows are marked and ordered before others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.rows import Rows, StateChanges, concat_batches
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedOperator, TimedResult
from anabranch.records.bins import BinSet, bin_of
from anabranch.records.run_list import RunList, replace_all
from anabranch.records.times import EARLIEST
from anabranch.runs.compaction import LIMITS, CompactionLimits
from anabranch.runs.due import NEVER
from anabranch.runs.region_state import RegionState
from anabranch.task.task_state import TimedState
from anabranch.task.task_times import TaskTimes
from tests.runs.kind_store import plain_create

BINS = 8


@dataclass
class KeptState:
    """One state of the operator, of all workers."""

    shape: StateShape
    keys: pa.Schema
    runs: RunList = ()
    live: np.ndarray = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))

    def open(self, root: Path, owned: BinSet, limits: CompactionLimits = LIMITS) -> RegionState:
        layout = self.shape.layout(self.keys)
        return RegionState(
            self.shape.name, layout, self.runs, root, BINS, owned, self.live, limits=limits
        )


class TimedHarness:
    """An operator, its states, and the frontier that it has reached."""

    def __init__(
        self,
        operator: TimedOperator,
        shapes: Sequence[StateShape],
        keys: pa.Schema,
        root: Path,
        *,
        workers: int = 1,
        limits: CompactionLimits = LIMITS,
        clock_ns: int = 1_000,
        timed: bool = True,
        checked: bool = True,
    ) -> None:
        """Begin with empty states; what it checks after each step reads them whole."""
        self.operator = operator
        self.states = {shape.name: KeptState(shape, keys) for shape in shapes}
        self.root = root
        self.workers = [BinSet.of(range(w, BINS, workers)) for w in range(min(workers, BINS))]
        self.limits = limits
        self.clock_ns = clock_ns
        self.timed = timed
        self.checked = checked
        self.frontier = EARLIEST
        self.number = 0
        self.holds = np.full(BINS, NEVER, dtype=np.int64)

    def step(self, rows: Rows | None = None, until: int | None = None) -> TimedResult:
        """Run a step on all workers; the frontier moves to ``until`` before its rows."""
        self.number += 1
        move = FrontierMove(self.frontier, self.frontier if until is None else until)
        assert move.since <= move.until
        results: list[TimedResult] = []
        parts: dict[str, list[tuple[BinSet, RunList]]] = {name: [] for name in self.states}
        live = {name: kept.live.copy() for name, kept in self.states.items()}
        for worker, owned in enumerate(self.workers):
            opened = {
                n: kept.open(self.root, owned, self.limits) for n, kept in self.states.items()
            }
            views = {name: self._view(name, state, move) for name, state in opened.items()}
            made = self.operator.step(self._share(rows, owned), move, views)
            self._check_output(made, move, owned, with_rows=rows is not None)
            results.append(made)
            assert set(made.changes) <= set(opened)
            for name, state in opened.items():
                written = self._write(name, state, made.changes.get(name), worker, move)
                if written is not None:
                    parts[name].append((owned, written.runs))
                    mask = owned.mask(BINS)
                    live[name][mask] = written.live[mask]
        for name, kept in self.states.items():
            kept.runs, kept.live = replace_all(kept.runs, parts[name]), live[name]
        self.frontier = move.until
        if self.checked:
            self._check_live()
        self.holds = self._holds()
        return TimedResult(
            _joined([made.output for made in results]), _joined([made.late for made in results])
        )

    def scan(self, name: str) -> list[dict[str, Any]]:
        """All rows of a state that are alive at the frontier."""
        kept = self.states[name]
        state = kept.open(self.root, BinSet.every(BINS))
        rows: list[dict[str, Any]] = state.scan(self._now(kept.shape, self.frontier)).to_pylist()
        return rows

    def _now(self, shape: StateShape, frontier: int) -> int:
        return frontier if shape.clock == "event" else self.clock_ns

    def _view(self, name: str, state: RegionState, move: FrontierMove) -> TimedState:
        now = self._now(self.states[name].shape, move.until)
        return TimedState(state, self.clock_ns, now, self.number, TaskTimes())

    def _share(self, rows: Rows | None, owned: BinSet) -> Rows | None:
        if rows is None:
            return None
        assert rows.hashes is not None
        mine = np.flatnonzero(owned.mask(BINS)[bin_of(rows.hashes, BINS)])
        return rows.take(mine) if len(mine) else None

    def _write(
        self,
        name: str,
        state: RegionState,
        changes: StateChanges | None,
        worker: int,
        move: FrontierMove,
    ) -> Any:
        return state.write(
            None if changes is None else changes.changed,
            f"{name}-{self.number}-{worker}",
            found=None if changes is None else changes.found,
            now_ns=self._now(self.states[name].shape, move.until),
            create=plain_create,
        )

    def _check_output(
        self, made: TimedResult, move: FrontierMove, owned: BinSet, *, with_rows: bool
    ) -> None:
        rows = made.output
        if rows is None or not self.timed:
            return
        assert rows.times is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        assert len(rows) == len(rows.times) == len(rows.hashes) == rows.keys.num_rows
        bins = bin_of(rows.hashes, BINS)
        assert owned.mask(BINS)[bins].all()
        fired = np.zeros(len(rows), dtype=np.bool_) if rows.fired is None else rows.fired
        if rows.order is not None:
            assert (rows.order.columns[0][fired] < 0).all()
            assert len(rows.order) == len(rows)
        if not with_rows:
            assert fired.all(), "without rows, only the frontier can have made these"
            # What is made by the clock of the steps has the time of the frontier.
            reached = move.since if move.ends else move.until
            held = np.minimum(self.holds[bins], reached)
            assert (rows.times >= held).all(), "the hold was too late"
            # What timers make that were due when they were set has the time of the frontier.
            assert (rows.times <= move.until).all()

    def _check_live(self) -> None:
        """The number of live rows is that of the newest rows in the files, also expired ones."""
        for kept in self.states.values():
            state = kept.open(self.root, BinSet.every(BINS))
            found = state.scan(EARLIEST if kept.shape.expires else None).combine_chunks()
            bins = bin_of(found.column("hash").to_numpy(), BINS)
            assert np.bincount(bins, minlength=BINS).tolist() == kept.live.tolist()

    def _holds(self) -> np.ndarray:
        holds = np.full(BINS, NEVER, dtype=np.int64)
        for name, kept in self.states.items():
            if kept.shape.dues and kept.shape.clock == "event":
                dues = kept.open(self.root, BinSet.every(BINS)).next_due(self.frontier)
                some = np.flatnonzero(dues < NEVER)
                held = self.operator.holds(name, dues[some], self.frontier)
                holds[some] = np.minimum(holds[some], held)
        return holds


def _joined(parts: Sequence[Rows | None]) -> Rows | None:
    some = [part for part in parts if part is not None]
    return concat_batches(some) if some else None
