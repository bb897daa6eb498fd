"""An operator with its states in real files, step after step: for the tests of operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.rows import Rows
from anabranch.operators.states import StatefulOperator, run_operator, state_shapes
from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList
from anabranch.runs.entries import Entries
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import LookupResult
from tests.runs.kind_store import plain_create

BINS = 8


class View:
    """A state at the clock of a step."""

    def __init__(self, state: RegionState, now_ns: int, step: int) -> None:
        self.state = state
        self.now_ns = now_ns
        self.step = step

    def lookup(self, hashes: Any, keys: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        return self.state.lookup(hashes, keys, self.now_ns)

    def find(self, hashes: Any, keys: pa.RecordBatch) -> LookupResult:
        return self.state.find(hashes, keys, self.now_ns)

    def entries(self, hashes: Any, keys: pa.RecordBatch) -> Entries:
        return self.state.entries(hashes, keys, self.now_ns)


class Kept:
    """The states of one operator, as a directory would have them."""

    def __init__(self, operator: StatefulOperator, keys: pa.Schema, root: Path) -> None:
        self.operator = operator
        self.root = root
        self.layouts: dict[str, Layout] = {
            shape.name: shape.layout(keys) for shape in state_shapes(operator)
        }
        self.runs: dict[str, RunList] = dict.fromkeys(self.layouts, ())
        self.live = {name: np.zeros(BINS, dtype=np.int64) for name in self.layouts}
        self.step_number = 0
        self.now_ns = 1_000

    def state(self, name: str) -> RegionState:
        return RegionState(
            name,
            self.layouts[name],
            self.runs[name],
            self.root,
            BINS,
            BinSet.every(BINS),
            self.live[name],
        )

    def step(self, rows: Rows, dead: list[RowFailure] | None = None) -> Rows:
        """Run one step and keep what it changed; what fails goes to ``dead``, if that is given."""
        self.step_number += 1
        states = {name: self.state(name) for name in self.layouts}
        views = {name: View(state, self.now_ns, self.step_number) for name, state in states.items()}
        output, changes = run_operator(self.operator, rows, views, self.now_ns, dead)
        for name, change in changes.items():
            written = states[name].write(
                change.changed,
                f"{name}-{self.step_number}",
                found=change.found,
                now_ns=self.now_ns,
                create=plain_create,
            )
            if written is not None:
                self.runs[name], self.live[name] = written.runs, written.live
        return output

    def scan(self, name: str) -> Sequence[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.state(name).scan(self.now_ns).to_pylist()
        return rows
