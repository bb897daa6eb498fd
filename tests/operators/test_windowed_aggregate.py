"""Windowed aggregates against plain Python: random rows, late and early, on one worker or more."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.aggregate import AggregateColumn, Argument
from anabranch.operators.timed import TimedResult
from anabranch.operators.windows import pane_step
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate
from anabranch.runs.compaction import LIMITS, CompactionLimits
from anabranch.runs.due import NEVER
from tests.operators.timed_harness import TimedHarness
from tests.operators.window_model import (
    KEYS,
    ModelWindow,
    Step,
    Windows,
    by_repr,
    cut,
    cuts,
    in_time,
    late_numbers,
    model_of,
    output_tuples,
    rows_of,
    scripts,
    some_panes,
    some_sessions,
    with_empty_steps,
)

TIME = pa.timestamp("us", tz="UTC")
VALUE, NUMBER = Argument("v", pa.int64(), "v"), Argument("number", pa.int64(), "number")
COLUMNS = (
    AggregateColumn("n", "count", (), (), pa.int64(), "count(*)"),
    AggregateColumn("total", "sum", (VALUE,), (), pa.int64(), "sum(v)"),
    AggregateColumn("rows", "collect_list", (NUMBER,), (), pa.list_(pa.int64()), "collect_list"),
)
OUTPUT = pa.schema(
    [
        *KEYS,
        ("window_start", TIME),
        ("window_end", TIME),
        ("n", pa.int64()),
        ("total", pa.int64()),
        ("rows", pa.list_(pa.int64())),
    ]
)
WORKERS = st.sampled_from([1, 2, 5])
RESTLESS = CompactionLimits(young_bytes=0, fan_out=2, run_limit=2, small_rows=0)
EVERY_WINDOW = st.one_of(some_panes(), some_sessions)


def operator(windows: Windows, *, changes: bool = False) -> WindowedAggregate:
    return WindowedAggregate("counts", windows, COLUMNS, KEYS, OUTPUT, changes)


def expected(window: ModelWindow) -> tuple[Any, ...]:
    values = [event.value for event in window.rows if event.value is not None]
    total = sum(values) if values else None
    numbers = tuple(event.number for event in window.rows)
    return (window.key, window.start, window.end, len(window.rows), total, numbers)


@dataclass
class Played:
    """What came out of a script: for each step, the output in its order and the late rows."""

    output: list[list[tuple[Any, ...]]]
    late: list[list[int]]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for step in self.output for row in step]


def play(
    windows: Windows,
    steps: Sequence[Step],
    *,
    workers: int = 1,
    changes: bool = False,
    shuffle: int = 0,
    limits: CompactionLimits = LIMITS,
) -> Played:
    generator = np.random.default_rng(shuffle)
    played = Played([], [])
    with tempfile.TemporaryDirectory() as directory:
        made = operator(windows, changes=changes)
        harness = TimedHarness(
            made, made.shapes, KEYS, Path(directory), workers=workers, limits=limits
        )
        for step in steps:
            arrival = generator.permutation(len(step.fired) + len(step.data))
            result = harness.step(rows_of(step, arrival.tolist()), step.until)
            check(result, step)
            played.output.append(output_tuples(result.output))
            played.late.append(late_numbers(result.late))
        assert harness.scan("counts") == [], "at the end of time nothing is left"
        assert (harness.holds == NEVER).all()
    return played


def check(result: TimedResult, step: Step) -> None:
    rows = result.output
    if rows is not None:
        assert rows.times is not None
        ends = rows.values.column("window_end").cast(pa.int64()).to_numpy()
        assert (rows.times == ends - 1).all()
        assert rows.values.schema == OUTPUT


@settings(max_examples=50)
@given(EVERY_WINDOW, scripts(), WORKERS, st.integers(0, 99), st.sampled_from([LIMITS, RESTLESS]))
def test_every_window_comes_out_once_when_it_closes(
    windows: Windows, steps: list[Step], workers: int, shuffle: int, limits: CompactionLimits
) -> None:
    played = play(windows, steps, workers=workers, shuffle=shuffle, limits=limits)
    model = model_of(windows)
    for step, output, late in zip(steps, played.output, played.late, strict=True):
        wanted = model.step(step)
        assert by_repr(output) == by_repr(map(expected, wanted.closed))
        assert late == sorted(event.number for event in wanted.late)


@settings(max_examples=50)
@given(some_panes(), scripts(), WORKERS, st.integers(0, 99))
def test_changes_come_out_at_once_and_closing_windows_not_again(
    windows: Panes, steps: list[Step], workers: int, shuffle: int
) -> None:
    played = play(windows, steps, workers=workers, changes=True, shuffle=shuffle)
    model = model_of(windows)
    for step, output, late in zip(steps, played.output, played.late, strict=True):
        wanted = model.step(step)
        changed = [*wanted.changed_by_fired, *wanted.changed]
        assert by_repr(output) == by_repr(map(expected, changed))
        assert late == sorted(event.number for event in wanted.late)


CHANGES = st.booleans()


@settings(max_examples=30)
@given(EVERY_WINDOW, scripts(), WORKERS, CHANGES, st.data())
def test_r9_neither_workers_nor_arrival_nor_compaction_change_anything(
    windows: Windows, steps: list[Step], workers: int, changes: bool, data: st.DataObject
) -> None:
    changes = changes and isinstance(windows, Panes)
    alone = play(windows, steps, changes=changes)
    shuffle = data.draw(st.integers(0, 99))
    limits = data.draw(st.sampled_from([LIMITS, RESTLESS]))
    assert alone == play(
        windows, steps, workers=workers, changes=changes, shuffle=shuffle, limits=limits
    )


@settings(max_examples=30)
@given(EVERY_WINDOW, scripts(), CHANGES, st.data())
def test_empty_steps_change_nothing_but_the_step_in_which_a_result_appears(
    windows: Windows, steps: list[Step], changes: bool, data: st.DataObject
) -> None:
    changes = changes and isinstance(windows, Panes)
    where = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    plain = play(windows, steps, changes=changes)
    more = play(windows, with_empty_steps(steps, where), changes=changes)
    assert plain.rows == more.rows
    assert list(chain(*plain.late)) == list(chain(*more.late))


@settings(max_examples=30)
@given(some_panes(), in_time(), st.data())
def test_other_steps_give_the_same_windows_if_no_row_is_late(
    windows: Panes, steps: list[Step], data: st.DataObject
) -> None:
    events = [event for step in steps for event in step.data]
    others = cut(events, data.draw(cuts(len(events))))
    one, other = play(windows, steps), play(windows, others)
    assert by_repr(one.rows) == by_repr(other.rows)
    assert one.late == [[] for _ in steps]
    assert other.late == [[] for _ in others]


@settings(max_examples=30)
@given(some_sessions, in_time(), st.data())
def test_other_steps_give_the_same_sessions_if_no_row_is_late(
    windows: SessionGap, steps: list[Step], data: st.DataObject
) -> None:
    events = [event for step in steps for event in step.data]
    others = cut(events, data.draw(cuts(len(events))))
    one, other = play(windows, steps), play(windows, others)
    # In what order rows of merged sessions are seen depends on when they merge.
    plain = [[(*row[:-1], sorted(row[-1])) for row in played.rows] for played in (one, other)]
    assert by_repr(plain[0]) == by_repr(plain[1])
    assert not any(one.late + other.late)


@settings(max_examples=15)
@given(some_panes(), scripts())
def test_panes_are_merged_some_at_a_time(windows: Panes, steps: list[Step]) -> None:
    whole = play(windows, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_step, "MERGED_PANES", 3)
        assert play(windows, steps) == whole
