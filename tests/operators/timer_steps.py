"""A ``process`` over event time, step after step, with its timers in real files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as replace_struct

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows
from anabranch.operators.states import build, state_shapes
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timers.timed_process import TimedProcess
from anabranch.records.times import TOO_FAR
from anabranch.task.task_state import TimedState, all_keys
from anabranch.records.bins import BinSet
from tests.dataflow.fakes import sink, source
from tests.operators.keyed_rows import make_rows
from tests.operators.timed_harness import BINS, TimedHarness

KEY = pa.schema([("who", pa.string())])
ROW = pa.schema([("who", pa.string()), ("op", pa.string()), ("name", pa.string()), ("arg", pa.int64())])
OUTPUT = "who string, text string"


@dataclass(frozen=True)
class Given:
    """An input row: its key, its event time, and what it says."""

    who: str
    at: int
    op: str = ""
    name: str = ""
    arg: int = 0


def operator(
    process: type[ab.Process], *, timed: bool = True, output: str = OUTPUT, time: str | None = None
) -> ProcessOperator:
    """The operator of a class, over rows of ``ROW``."""
    flow = Dataflow("flow")
    rows = flow.source("rows", source("who string, op string, name string, arg bigint"))
    made = rows.key_distribute("by-who", "who").process("alarms", process, output=output)
    made.sink("out", sink())
    typed = validate(flow.graph())
    built = build(typed, typed.graph.stateful()[0])
    assert isinstance(built, ProcessOperator)
    handles = built.handles
    return replace_struct(built, timed=timed, time=time, handles=handles)


def rows_of(
    given: Sequence[Given], *, fired: bool = False, spread: int = 1 << 32, timed: bool = True
) -> Rows:
    """Rows in the order in which they are given."""
    table = pa.table(
        [[getattr(row, name) for row in given] for name in ROW.names], schema=ROW
    )
    rows = make_rows([(row.who,) for row in given], KEY, table, spread=spread, order=range(len(given)))
    if not timed:
        return rows
    times = np.array([row.at for row in given], dtype=np.int64)
    return replace(rows, times=times, fired=np.full(len(given), fired))


@dataclass
class Dead:
    """An operator whose failures go to a list, and whose keys are told the end of the input."""

    inner: TimedProcess
    dead: list[RowFailure] | None = None
    now_ns: int | None = None
    overdue: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        ending = []
        if frontier.ends and self.inner.operator.handles_end:
            ending = _keys(self.inner.operator, frontier, states)
        made = self.inner.step(
            rows, frontier, states, now_ns=self.now_ns, dead=self.dead, ending=ending
        )
        if made.overdue is not None:
            self.overdue += made.overdue.tolist()
        return made

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        return self.inner.holds(state, dues, frontier)


def _keys(
    process: ProcessOperator, frontier: FrontierMove, states: Mapping[str, TimedEntries]
) -> list[Any]:
    kept = []
    for spec in process.states:
        view = states[spec.state]
        assert isinstance(view, TimedState)
        kept.append((view.state, frontier.since if spec.clock == "event" else view.now_ns))
    found = all_keys(kept, BinSet.every(BINS))
    return [] if found is None else [found]


class Steps:
    """The steps of a class on some workers."""

    def __init__(
        self, process: ProcessOperator, root: Path, *, workers: int = 1, spread: int = 1 << 32
    ) -> None:
        self.operator = Dead(TimedProcess(process))
        self.spread = spread
        self.timed = process.timed
        shapes = state_shapes(process)
        root.mkdir(parents=True, exist_ok=True)
        self.harness = TimedHarness(self.operator, shapes, KEY, root, workers=workers)

    def step(
        self,
        data: Sequence[Given] = (),
        until: int | None = None,
        *,
        fired: Sequence[Given] = (),
        now_ns: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run a step; returns the output rows in their order, each with its time at the end."""
        if now_ns is not None:
            self.harness.clock_ns = now_ns
        rows = self._rows(data, fired)
        made = self.harness.step(rows, until)
        self.late = made.late
        return shown(made.output)

    def timers(self, clock: str = "event") -> dict[tuple[str, str], int]:
        """The timers that wait: key and name → when they are due."""
        found = self.harness.scan(f"alarms.{clock}-timers")
        return {(row["k_who"], row["s_name"]): row["expiry"] for row in found}

    def _rows(self, data: Sequence[Given], fired: Sequence[Given]) -> Rows | None:
        if not data and not fired:
            return None
        given = [*fired, *data]
        rows = rows_of(given, spread=self.spread, timed=self.timed)
        if self.timed:
            rows = replace(rows, fired=np.arange(len(given)) < len(fired))
        return rows


def shown(output: Rows | None) -> list[tuple[Any, ...]]:
    """Output rows in their order, each with its time at the end."""
    if output is None:
        return []
    assert output.order is not None
    places = output.order.permutation()
    rows = output if places is None else output.take(places)
    times = [None] * len(rows) if rows.times is None else rows.times.tolist()
    columns = [column.to_pylist() for column in rows.values.columns]
    return list(zip(*columns, times, strict=True))


FAR = TOO_FAR
