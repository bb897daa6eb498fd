"""A ``process`` over event time, step after step, with its timers in real files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.order.row_order import Int64s, RowOrder
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows
from anabranch.operators.states import build, state_shapes
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.timers.timed_process import TimedProcess
from anabranch.records.bins import BinSet
from anabranch.runs.rows import Groups
from anabranch.task.task_state import TimedState, all_keys
from tests.dataflow.fakes import sink, source
from tests.operators.keyed_rows import make_rows
from tests.operators.timed_harness import BINS, TimedHarness

KEY = pa.schema([("who", pa.string())])
COLUMNS = "who string, op string, name string, arg bigint, at timestamp"
OUTPUT = "who string, text string"


class Given(NamedTuple):
    """An input row: its key, its event time, and what it says."""

    who: str
    at: int
    op: str = ""
    name: str = ""
    arg: int = 0


def operator(
    process: type[ab.Process], *, timed: bool = True, output: str = OUTPUT, time: str | None = None
) -> ProcessOperator:
    """The operator of a class, with or without event times."""
    flow = Dataflow("flow")
    rows = flow.source("rows", source(COLUMNS))
    if timed:
        rows = rows.assign_timestamps("at")
    rows = rows.key_distribute("by-who", "who")
    rows.process("alarms", process, output=output, time=time).sink("out", sink())
    typed = validate(flow.graph())
    built = build(typed, typed.graph.stateful()[0])
    assert isinstance(built, ProcessOperator)
    return built


def rows_of(given: Sequence[Given], *, spread: int = 1 << 32, timed: bool = True) -> Rows:
    """Rows in the order in which they are given."""
    columns = [[getattr(row, name) for row in given] for name in ("who", "op", "name", "arg")]
    times = np.array([row.at for row in given], dtype=np.int64)
    table = pa.table([*columns, times], names=["who", "op", "name", "arg", "at"])
    keys = [(row.who,) for row in given]
    rows = make_rows(keys, KEY, table, spread=spread, order=range(len(given)))
    return replace(rows, times=times) if timed else rows


@dataclass
class Watched:
    """The operator: its failures may go to a list, and its keys are told the end of the input."""

    inner: TimedProcess
    dead: list[RowFailure] | None = None
    overdue: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        ending = _keys(self.inner.operator, frontier, states) if frontier.ends else []
        made = self.inner.step(rows, frontier, states, dead=self.dead, ending=ending)
        if made.overdue is not None:
            self.overdue += made.overdue.tolist()
        return made

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        return self.inner.holds(state, dues, frontier)


def _keys(
    process: ProcessOperator, frontier: FrontierMove, states: Mapping[str, TimedEntries]
) -> list[Groups]:
    kept = []
    for spec in process.states if process.handles_end else ():
        view = states[spec.state]
        assert isinstance(view, TimedState)
        kept.append((view.state, frontier.since if spec.clock == "event" else view.now_ns))
    found = all_keys(kept, BinSet.every(BINS)) if kept else None
    return [] if found is None else [found]


class Steps:
    """The steps of a class on some workers."""

    def __init__(
        self, process: ProcessOperator, root: Path, *, workers: int = 1, spread: int = 1 << 32
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.operator = Watched(TimedProcess(process))
        self.spread = spread
        self.timed = process.timed
        self.late: Rows | None = None
        shapes = state_shapes(process)
        self.harness = TimedHarness(
            self.operator, shapes, KEY, root, workers=workers, timed=process.timed
        )

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
        rows = rows_of([*fired, *data], spread=self.spread, timed=self.timed)
        if fired and rows.order is not None:
            mask = np.arange(len(rows)) < len(fired)
            rest = rows.order.columns[1:]
            rows = replace(rows, fired=mask, order=RowOrder((-mask.astype(np.int64), *rest)))
        made = self.harness.step(rows if len(rows) else None, until)
        self.late = made.late
        return shown(made.output)

    def timers(self, clock: str = "event") -> dict[tuple[str, str], int]:
        """The timers that wait: key and name → when they are due."""
        found = self.harness.scan(f"alarms.{clock}-timers")
        return {(row["k_who"], row["s_name"]): row["expiry"] for row in found}


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
