"""Every aggregate function over windows: merged panes and sessions give what all rows give."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.windows.windowed_aggregate import WindowedAggregate
from tests.operators.aggregate_cases import Case
from tests.operators.test_aggregate_functions import EVERY, Cell, same, stories, table
from tests.operators.test_aggregate_functions import operator as plain_operator
from tests.operators.timed_harness import TimedHarness
from tests.operators.window_model import (
    KEYS,
    Event,
    Step,
    Windows,
    cut,
    model_of,
    rows_of,
    some_panes,
    some_sessions,
)

TIME = pa.timestamp("us", tz="UTC")


@EVERY
@settings(max_examples=3)
@given(some_panes() | some_sessions, st.data())
def test_every_function_over_windows(case: Case, windows: Windows, data: st.DataObject) -> None:
    kinds, parts, filtered = data.draw(stories(case))
    cells: list[Cell] = [cell for part in parts for cell in part]
    times = data.draw(st.lists(st.integers(0, 30), min_size=len(cells), max_size=len(cells)))
    events = [Event(c[0], t, None, i) for i, (c, t) in enumerate(zip(cells, times, strict=True))]
    steps = cut(events, [len(parts[0])])
    columns = plain_operator(case, kinds, filtered=filtered).columns
    result = columns[0].kind
    output = pa.schema([*KEYS, ("window_start", TIME), ("window_end", TIME), ("r", result)])
    operator = WindowedAggregate("totals", windows, columns, KEYS, output)

    def given_rows(step: Step) -> Any:
        rows = rows_of(step)
        if rows is None:
            return None
        chosen = [cells[event.number] for event in step.data]
        return replace(rows, values=table(case, kinds, chosen, filtered=filtered))

    found: dict[Any, Any] = {}
    wanted: dict[Any, Any] = {}
    model = model_of(windows)
    with tempfile.TemporaryDirectory() as directory:
        harness = TimedHarness(operator, operator.shapes, KEYS, Path(directory), workers=2)
        for step in steps:
            made = harness.step(given_rows(step), step.until).output
            if made is not None:
                ends = made.values.column("window_end").cast(pa.int64()).to_pylist()
                names = zip(made.values.column("k").to_pylist(), ends, strict=True)
                found |= zip(names, made.values.column("r").to_pylist(), strict=True)
            for window in model.step(step).closed:
                rows = [cells[e.number] for e in window.rows]
                arguments = [argument for _, argument, kept in rows if kept]
                wanted[window.key, window.end] = case.oracle(arguments, result)
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert same(value, wanted[name], close=case.close), (name, value, wanted[name])
