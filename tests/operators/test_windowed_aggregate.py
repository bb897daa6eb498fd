"""Windowed aggregates against plain Python: random rows, late and early, on one worker or more."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.aggregate import AggregateColumn, Argument
from anabranch.operators.windows import pane_step
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.windowed_aggregate import WindowedAggregate
from anabranch.runs.compaction import CompactionLimits
from tests.operators.window_model import (
    KEYS,
    Event,
    ModelWindow,
    Step,
    Windows,
    cut,
    cuts,
    in_time,
    model_of,
    scripts,
    some_panes,
    some_sessions,
)
from tests.operators.window_plays import (
    COMPACTIONS,
    TIME,
    WORKERS,
    Row,
    by_repr,
    check_closed_windows,
    check_empty_steps,
    check_placement,
    play,
)

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
ANY_WINDOWS = some_panes() | some_sessions
CHANGES = st.booleans()


def operator(windows: Windows, *, changes: bool = False) -> WindowedAggregate:
    changes = changes and isinstance(windows, Panes)
    return WindowedAggregate("counts", windows, COLUMNS, KEYS, OUTPUT, changes)


def expected(window: ModelWindow) -> list[Row]:
    values = [event.value for event in window.rows if event.value is not None]
    total = sum(values) if values else None
    numbers = tuple(event.number for event in window.rows)
    count = len(window.rows)
    return [(window.key, window.start, window.end, count, total, numbers, window.end - 1)]


@settings(max_examples=50)
@given(ANY_WINDOWS, scripts(), WORKERS, st.integers(0, 99), COMPACTIONS)
def test_every_window_comes_out_once_when_it_closes(
    windows: Windows, steps: list[Step], workers: int, shuffle: int, limits: CompactionLimits
) -> None:
    check_closed_windows(
        operator(windows), windows, steps, expected, workers=workers, shuffle=shuffle, limits=limits
    )


@settings(max_examples=50)
@given(some_panes(), scripts(), WORKERS, st.integers(0, 99))
def test_changes_come_out_at_once_and_closing_windows_not_again(
    windows: Panes, steps: list[Step], workers: int, shuffle: int
) -> None:
    played = play(operator(windows, changes=True), steps, workers=workers, shuffle=shuffle)
    model = model_of(windows)
    for step, output, late in zip(steps, played.output, played.late, strict=True):
        wanted = model.step(step)
        changed = [*wanted.changed_by_fired, *wanted.changed]
        assert by_repr(output) == by_repr(row for each in changed for row in expected(each))
        assert late == sorted(event.number for event in wanted.late)


@settings(max_examples=30)
@given(ANY_WINDOWS, scripts(), CHANGES, st.data())
def test_r9_neither_workers_nor_arrival_nor_compaction_change_anything(
    windows: Windows, steps: list[Step], changes: bool, data: st.DataObject
) -> None:
    check_placement(operator(windows, changes=changes), steps, data)


@settings(max_examples=30)
@given(ANY_WINDOWS, scripts(), CHANGES, st.data())
def test_empty_steps_change_nothing_but_the_step_in_which_a_result_appears(
    windows: Windows, steps: list[Step], changes: bool, data: st.DataObject
) -> None:
    check_empty_steps(operator(windows, changes=changes), steps, data)


@settings(max_examples=30)
@given(ANY_WINDOWS, in_time(), st.data())
def test_other_steps_give_the_same_windows_if_no_row_is_late(
    windows: Windows, steps: list[Step], data: st.DataObject
) -> None:
    events = [event for step in steps for event in step.data]
    others = cut(events, data.draw(cuts(len(events))))
    played = [play(operator(windows), script) for script in (steps, others)]
    rows = [each.rows for each in played]
    if isinstance(windows, SessionGap):
        # In what order the rows of merged sessions are seen depends on when they merge.
        rows = [[(*row[:5], sorted(row[5])) for row in each] for each in rows]
    assert by_repr(rows[0]) == by_repr(rows[1])
    assert not any(each.all_late for each in played)


@settings(max_examples=15)
@given(some_panes(), scripts())
def test_panes_are_merged_some_at_a_time(windows: Panes, steps: list[Step]) -> None:
    whole = play(operator(windows), steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_step, "MERGED_PANES", 3)
        assert play(operator(windows), steps) == whole


def row(key: str | None, time: int, number: int) -> Event:
    return Event(key, time, number, number)


END = 1 << 62


def windows_of(windows: Windows, *steps: Step, changes: bool = False) -> list[list[Any]]:
    """What each step outputs: key, start, end and rows of the windows."""
    played = play(operator(windows, changes=changes), [*steps, Step(END)])
    return [[(r[0], r[1], r[2], r[5]) for r in output] for output in played.output]


def test_a_row_below_the_frontier_counts_while_its_window_is_open() -> None:
    steps = (Step(0, (), (row("a", 1, 1),)), Step(9, (), (row("a", 2, 2),)))
    assert windows_of(Panes(10, 10), *steps) == [[], [], [("a", 0, 10, (1, 2))]]


def test_a_late_row_of_a_sliding_window_counts_for_those_that_are_open() -> None:
    steps = (Step(0, (), (row("a", 1, 1),)), Step(10, (), (row("a", 2, 2),)))
    closing = [[("a", -5, 5, (1,)), ("a", 0, 10, (1,))], []]
    assert windows_of(Panes(10, 5), *steps) == [[], *closing]
    steps = (Step(0, (), (row("a", 1, 1),)), Step(5, (), (row("a", 2, 2),)))
    assert windows_of(Panes(10, 5), *steps) == [[], [("a", -5, 5, (1,))], [("a", 0, 10, (1, 2))]]


def test_the_data_of_a_step_comes_after_its_frontier() -> None:
    """Were it before, this row would be in the window, and an empty step would change that."""
    step = Step(10, (), (row("a", 9, 2),))
    made = play(operator(Panes(10, 10)), [Step(0, (), (row("a", 1, 1),)), step, Step(END)])
    assert made.late == [[], [2], []]
    assert [r[5] for r in made.rows] == [(1,)]


def test_fired_rows_come_before_the_frontier_and_are_not_late() -> None:
    steps = [Step(0, (), (row("a", 1, 1),)), Step(10, (row("a", 9, 2), row("b", 9, 3))), Step(END)]
    made = play(operator(Panes(10, 10)), steps)
    assert by_repr(r[5] for r in made.rows) == [(1, 2), (3,)]
    assert made.all_late == []


def test_a_session_that_another_has_absorbed_does_not_fire() -> None:
    first = Step(0, (), (row("a", 0, 1), row("a", 12, 2)))
    bridge = Step(0, (), (row("a", 6, 3),))
    assert windows_of(SessionGap(8), first, bridge) == [[], [], [("a", 0, 20, (1, 2, 3))]]
    # Also if a fired row bridges them in the step in which the first would close.
    fired = Step(8, (row("a", 6, 3),))
    assert windows_of(SessionGap(8), first, fired) == [[], [], [("a", 0, 20, (1, 2, 3))]]


def test_a_row_at_the_end_of_a_session_begins_another() -> None:
    """When the frontier is there, the session may be closed: no other way is always the same."""
    together = Step(0, (), (row("a", 0, 1), row("a", 5, 2)))
    assert windows_of(SessionGap(5), together) == [[], [("a", 0, 5, (1,)), ("a", 5, 10, (2,))]]
    apart = (Step(0, (), (row("a", 0, 1),)), Step(5, (), (row("a", 5, 2),)))
    assert windows_of(SessionGap(5), *apart) == [[], [("a", 0, 5, (1,))], [("a", 5, 10, (2,))]]


def test_a_session_may_begin_where_one_that_has_closed_began() -> None:
    steps = (
        Step(0, (), (row("a", 0, 1),)),
        Step(10, (), (row("a", 9, 2),)),  # opens another, beside the one that closes
        Step(11, (), (row("a", 0, 3),)),  # its own time has ended, but that one is open
    )
    assert windows_of(SessionGap(10), *steps) == [
        [],
        [("a", 0, 10, (1,))],
        [],
        [("a", 0, 19, (2, 3))],
    ]


def test_rows_of_one_step_keep_each_other_in_time() -> None:
    steps = [Step(10, (), (row("a", 0, 1), row("a", 5, 2), row("b", 0, 3))), Step(END)]
    made = play(operator(SessionGap(8)), steps)
    assert [r[5] for r in made.rows] == [(1, 2)]
    assert made.late[0] == [3]


def test_a_kind_names_its_windows() -> None:
    kinds = [operator(w).shapes[0].kind for w in (Panes(10, 10, 3), Panes(10, 5), SessionGap(7))]
    assert kinds == [
        "aggregate(n=count(*), total=sum(v), rows=collect_list) over tumbling(10, offset=3)",
        "aggregate(n=count(*), total=sum(v), rows=collect_list) over sliding(10, every=5)",
        "aggregate(n=count(*), total=sum(v), rows=collect_list) over session(7)",
    ]
