"""``apply`` against plain Python: a function gets all rows of closed windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.windows import row_contents
from anabranch.operators.windows.apply import WindowApply
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.window_function import WindowFunction
from tests.operators.timed_harness import TimedHarness
from tests.operators.window_model import (
    KEYS,
    VALUES,
    Event,
    ModelWindow,
    Step,
    Windows,
    cut,
    cuts,
    in_time,
    rows_of,
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

OUTPUT = pa.schema(
    [
        ("key", pa.string()),
        ("start", TIME),
        ("end", TIME),
        ("value", pa.int64()),
        ("numbers", pa.list_(pa.int64())),
    ]
)
ANY_WINDOWS = some_panes() | some_sessions
END = 1 << 62


def by_value(table: pa.Table) -> pa.Table:
    """For each window, the numbers of the rows of each value, greatest first; none for NULL."""
    assert table.column_names == ["k", "window_start", "window_end", "v", "number", "_window"]
    assert table.column("window_start").type == TIME
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in table.to_pylist():
        if row["v"] is not None:
            name = (row["_window"], row["k"], row["window_start"], row["window_end"], row["v"])
            found.setdefault(name, []).append(row["number"])
    cells = sorted(found.items(), key=lambda each: (-each[0][4], each[0][0]))
    return pa.table(
        {
            "numbers": pa.array([numbers for _, numbers in cells], pa.list_(pa.int64())),
            "_window": pa.array([name[0] for name, _ in cells], pa.int64()),
            "key": pa.array([name[1] for name, _ in cells], pa.string()),
            "start": pa.array([name[2] for name, _ in cells], TIME),
            "end": pa.array([name[3] for name, _ in cells], TIME),
            "value": pa.array([name[4] for name, _ in cells], pa.int64()),
        }
    )


def expected(window: ModelWindow) -> list[Row]:
    """Rows are in the order in which they came."""
    events = sorted(window.rows, key=lambda event: event.number)
    values = sorted({e.value for e in events if e.value is not None}, reverse=True)
    numbers = {v: tuple(e.number for e in events if e.value == v) for v in values}
    return [(window.key, window.start, window.end, v, numbers[v], window.end - 1) for v in values]


def operator(
    windows: Windows, function: Callable[[pa.Table], Any] = by_value, output: pa.Schema = OUTPUT
) -> WindowApply:
    return WindowApply(
        "summary", windows, WindowFunction("summary", function, VALUES, output), KEYS
    )


@settings(max_examples=50)
@given(ANY_WINDOWS, scripts(), WORKERS, st.integers(0, 99), COMPACTIONS)
def test_the_function_gets_all_rows_of_a_window_when_it_closes(
    windows: Windows, steps: list[Step], workers: int, shuffle: int, limits: Any
) -> None:
    options = {"workers": workers, "shuffle": shuffle, "limits": limits}
    check_closed_windows(operator(windows), windows, steps, expected, **options)


@settings(max_examples=25)
@given(ANY_WINDOWS, scripts(), st.data())
def test_r9_neither_workers_nor_arrival_nor_compaction_change_anything(
    windows: Windows, steps: list[Step], data: st.DataObject
) -> None:
    check_placement(operator(windows), steps, data)


@settings(max_examples=25)
@given(ANY_WINDOWS, scripts(), st.data())
def test_empty_steps_change_nothing_but_the_step_in_which_a_result_appears(
    windows: Windows, steps: list[Step], data: st.DataObject
) -> None:
    check_empty_steps(operator(windows), steps, data)


@settings(max_examples=25)
@given(ANY_WINDOWS, in_time(), st.data())
def test_other_steps_give_the_same_rows_if_no_row_is_late(
    windows: Windows, steps: list[Step], data: st.DataObject
) -> None:
    events = [event for step in steps for event in step.data]
    others = cut(events, data.draw(cuts(len(events))))
    one, other = (play(operator(windows), script) for script in (steps, others))
    assert by_repr(one.rows) == by_repr(other.rows)


@settings(max_examples=15)
@given(ANY_WINDOWS, scripts())
def test_tables_have_some_windows_at_a_time_and_never_a_part_of_one(
    windows: Windows, steps: list[Step]
) -> None:
    seen: Counter[tuple[Any, ...]] = Counter()

    def watched(table: pa.Table) -> pa.Table:
        rows = table.select(["k", "window_start", "window_end", "_window"]).to_pylist()
        names = {tuple(row.values())[:3]: row["_window"] for row in rows}
        seen.update(names.keys())
        assert sorted(names.values()) == list(range(len(names)))
        return by_value(table)

    whole = play(operator(windows), steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_contents, "TABLE_ROWS", 3)
        assert play(operator(windows, watched), steps) == whole
    assert set(seen.values()) <= {1}


def row(key: str, time: int, number: int) -> Event:
    return Event(key, time, number, number)


def test_a_row_per_window_needs_no_number(tmp_path: Path) -> None:
    def counts(table: pa.Table) -> pa.Table:
        return table.group_by("_window").aggregate([("v", "count")]).select(["v_count"])

    made = operator(Panes(10, 10), counts, pa.schema([("v_count", pa.int64())]))
    rows = (row("a", 1, 1), row("b", 2, 2), row("a", 3, 3), row("a", 11, 4))
    played = play(made, [Step(0, (), rows), Step(END)])
    assert by_repr(played.rows) == [(1, 19), (1, 9), (2, 9)]


def test_rows_of_closed_sessions_are_removed(tmp_path: Path) -> None:
    made = operator(SessionGap(5))
    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    harness.step(rows_of(Step(0, (), (row("a", 1, 1), row("a", 9, 2), row("b", 1, 3)))), 0)
    harness.step(None, 7)
    assert [kept["v_number"] for kept in harness.scan("summary.rows")] == [2]
    assert [kept["v_rows"] for kept in harness.scan("summary")] == [1]


def test_the_keys_of_rows_that_have_them_are_not_given_twice(tmp_path: Path) -> None:
    given_rows = pa.schema([("v", pa.int64()), ("K", pa.string())])
    names: list[Sequence[str]] = []

    def watched(table: pa.Table) -> pa.Table:
        names.append(table.column_names)
        return table.select(["v"])

    function = WindowFunction("summary", watched, given_rows, pa.schema([("v", pa.int64())]))
    made = WindowApply("summary", Panes(10, 10), function, KEYS)
    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    rows = rows_of(Step(0, (), (row("a", 1, 1),)))
    assert rows is not None
    values = pa.table({"v": [1], "K": ["a"]})
    harness.step(type(rows)(values, rows.hashes, rows.keys, rows.order, rows.times), 0)
    harness.step(None, END)
    assert names == [["window_start", "window_end", "v", "K", "_window"]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda table: None, "returned None instead of a table"),
        (lambda table: table, "returned no column key"),
        (lambda table: table.slice(0, 1).drop_columns("_window"), "returned 1 rows for 2 windows"),
        (
            lambda table: pa.table({"_window": pa.array([7], pa.int64())}),
            "returned a value of _window that it was not given",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    function: Callable[[pa.Table], Any], message: str, tmp_path: Path
) -> None:
    made = operator(Panes(10, 10), function)
    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    harness.step(rows_of(Step(0, (), (row("a", 1, 1), row("b", 2, 2)))), 0)
    with pytest.raises(OutputMismatch, match=message) as error:
        harness.step(None, END)
    assert "operator summary" in str(error.value)


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    def broken(table: pa.Table) -> pa.Table:
        raise ZeroDivisionError("no rows are enough")

    made = operator(Panes(10, 10), broken)
    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    harness.step(rows_of(Step(0, (), (row("a", 1, 1),))), 0)
    with pytest.raises(UserFunctionFailed, match="no rows are enough"):
        harness.step(None, END)
