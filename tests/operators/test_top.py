"""``top`` against plain Python: the first rows of windows, and of all rows so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.order_by import OrderColumn
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.operators.windows.top import RunningTop, TopRows, WindowedTop
from tests.operators.columns import EXACT, FLOATS, STRUCT, column, structs
from tests.operators.kept_states import Kept
from tests.operators.keyed_rows import make_rows
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

BY_VALUE = (OrderColumn("v", descending=True),)
BY_BOTH = (*BY_VALUE, OrderColumn("number"))
WINDOW = [pa.field("window_start", TIME), pa.field("window_end", TIME)]
RANK = pa.field("rank", pa.int32())
ANY_WINDOWS = some_panes() | some_sessions
END = 1 << 62


@st.composite
def tops(draw: st.DrawFn) -> TopRows:
    count, ties = draw(st.integers(1, 3)), draw(st.booleans())
    return top_rows(count, draw(st.sampled_from([BY_VALUE, BY_BOTH])), ties=ties)


def top_rows(count: int, by: Sequence[OrderColumn], *, ties: bool = False) -> TopRows:
    return TopRows(count, tuple(by), ties, VALUES, pa.schema([*VALUES, *WINDOW, RANK]))


def operator(windows: Windows, top: TopRows) -> WindowedTop:
    return WindowedTop("best", windows, top, KEYS)


def ranked(events: Sequence[Event], top: TopRows) -> list[tuple[int, Event]]:
    """Each of the first rows with its rank."""

    def place(event: Event) -> tuple[Any, ...]:
        value = (1, 0) if event.value is None else (0, -event.value)
        return (*value, event.number) if top.by == BY_BOTH else value

    found = sorted(events, key=place)
    ranks = [
        1 + (sum(place(e) < place(event) for e in found) if top.ties else number)
        for number, event in enumerate(found)
    ]
    return [each for each in zip(ranks, found, strict=True) if each[0] <= top.count]


@settings(max_examples=50)
@given(ANY_WINDOWS, tops(), scripts(), WORKERS, st.integers(0, 99), COMPACTIONS)
def test_a_window_gives_its_first_rows_when_it_closes(
    windows: Windows, top: TopRows, steps: list[Step], workers: int, shuffle: int, limits: Any
) -> None:
    def expected(window: ModelWindow) -> list[Row]:
        return [
            (event.value, event.number, window.start, window.end, rank, window.end - 1)
            for rank, event in ranked(window.rows, top)
        ]

    options = {"workers": workers, "shuffle": shuffle, "limits": limits}
    check_closed_windows(operator(windows, top), windows, steps, expected, **options)


@settings(max_examples=25)
@given(ANY_WINDOWS, tops(), scripts(), st.data())
def test_r9_neither_workers_nor_arrival_nor_compaction_change_anything(
    windows: Windows, top: TopRows, steps: list[Step], data: st.DataObject
) -> None:
    check_placement(operator(windows, top), steps, data)


@settings(max_examples=25)
@given(ANY_WINDOWS, tops(), scripts(), st.data())
def test_empty_steps_change_nothing_but_the_step_in_which_a_result_appears(
    windows: Windows, top: TopRows, steps: list[Step], data: st.DataObject
) -> None:
    check_empty_steps(operator(windows, top), steps, data)


@settings(max_examples=25)
@given(ANY_WINDOWS, st.integers(1, 3), st.booleans(), in_time(), st.data())
def test_other_steps_give_the_same_rows_if_no_row_is_late(
    windows: Windows, count: int, ties: bool, steps: list[Step], data: st.DataObject
) -> None:
    events = [event for step in steps for event in step.data]
    others = cut(events, data.draw(cuts(len(events))))
    # With equal rows, the first to come would count: for sessions that depends on the steps.
    top = top_rows(count, BY_BOTH, ties=ties)
    one, other = (play(operator(windows, top), script) for script in (steps, others))
    assert by_repr(one.rows) == by_repr(other.rows)


def test_rows_are_ordered_within_a_window_by_their_rank() -> None:
    rows = tuple(Event("a", 1, value, value) for value in (4, 9, 2, 7))
    made = play(operator(Panes(10, 10), top_rows(3, BY_VALUE)), [Step(0, (), rows), Step(END)])
    assert [(row[0], row[4]) for row in made.rows] == [(9, 1), (7, 2), (4, 3)]


def test_window_columns_of_the_input_stay_as_they_are(tmp_path: Path) -> None:
    """A window over the output of a window: its columns are the input's, and there is no other."""
    given_rows = pa.schema([*VALUES, *WINDOW])
    top = TopRows(1, BY_VALUE, False, given_rows, pa.schema([*given_rows, RANK]))
    made = WindowedTop("best", Panes(10, 10), top, KEYS)
    step = Step(0, (), (Event("a", 3, 1, 1),))
    rows = rows_of(step)
    assert rows is not None
    start, end = (pa.array([n], pa.int64()).cast(TIME) for n in (2, 4))
    values = rows.values.append_column(WINDOW[0], start).append_column(WINDOW[1], end)

    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    harness.step(replace(rows, values=values), 0)
    output = harness.step(None, END).output
    assert output is not None
    assert output.values.schema.names == ["v", "number", "window_start", "window_end", "rank"]
    assert output.values.column("window_end").cast(pa.int64()).to_pylist() == [4]
    assert output.times is not None
    assert output.times.tolist() == [9]


def test_only_rows_that_can_still_be_first_are_kept(tmp_path: Path) -> None:
    made = operator(SessionGap(5), top_rows(2, BY_VALUE))
    harness = TimedHarness(made, made.shapes, KEYS, tmp_path)
    for value in (3, 1, 4, 1, 5):
        harness.step(rows_of(Step(0, (), (Event("a", value, value, value),))), 0)
    (kept,) = harness.scan("best")
    assert kept["v_v"] == [5, 4]


# Without a window.


def running(top: TopRows, ttl_ns: int | None = None) -> RunningTop:
    plain = TopRows(top.count, top.by, top.ties, VALUES, pa.schema([*VALUES, RANK]))
    return RunningTop("best", plain, ttl_ns)


def output_by_key(rows: Any) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    order = rows.order.permutation()
    places = np.arange(len(rows)) if order is None else order
    keys = rows.keys.column(0).take(pa.array(places)).to_pylist()
    for key, row in zip(keys, rows.values.take(pa.array(places)).to_pylist(), strict=True):
        found.setdefault(key, []).append(tuple(row.values()))
    return found


@settings(max_examples=50)
@given(tops(), scripts(fired=False))
def test_each_step_gives_the_first_rows_of_the_keys_for_which_they_change(
    tmp_path_factory: pytest.TempPathFactory, top: TopRows, steps: list[Step]
) -> None:
    kept = Kept(running(top), KEYS, tmp_path_factory.mktemp("top"))
    seen: dict[str | None, list[Event]] = {}
    for step in steps:
        rows = rows_of(step)
        if rows is None:
            continue
        before = {key: ranked(events, top) for key, events in seen.items()}
        for event in step.data:
            seen.setdefault(event.key, []).append(event)
        after = {key: ranked(events, top) for key, events in seen.items()}
        wanted = {
            key: [(event.value, event.number, rank) for rank, event in first]
            for key, first in after.items()
            if first != before.get(key)
        }
        made = kept.step(rows)
        assert output_by_key(made) == wanted
        assert made.times is not None
        assert rows.times is not None
        assert set(made.times.tolist()) <= set(rows.times.tolist())


def test_fired_rows_change_the_first_rows_as_in_a_step_of_their_own(tmp_path: Path) -> None:
    top = top_rows(1, BY_VALUE)
    both = Step(0, (Event("a", 1, 3, 1),), (Event("a", 2, 5, 2),))
    rows = Kept(running(top), KEYS, tmp_path / "one").step(rows_of(both) or pytest.fail("no rows"))
    assert output_by_key(rows) == {"a": [(3, 1, 1), (5, 2, 1)]}
    assert rows.fired is not None
    assert rows.times is not None
    assert list(zip(rows.fired.tolist(), rows.times.tolist(), strict=True)) == [
        (True, 1),
        (False, 2),
    ]


def test_the_first_rows_of_a_key_expire(tmp_path: Path) -> None:
    kept = Kept(running(top_rows(1, BY_VALUE), ttl_ns=10), KEYS, tmp_path)
    step = [rows_of(Step(0, (), (Event("a", 1, value, value),))) for value in (9, 3, 2)]
    assert all(step)
    for rows, wanted in zip(step, ({"a": [(9, 9, 1)]}, {}, {"a": [(2, 2, 1)]}), strict=True):
        assert rows is not None
        assert output_by_key(kept.step(rows)) == wanted
        kept.now_ns += 6 if wanted else 20


TYPES = {**EXACT, **FLOATS, STRUCT: structs, pa.list_(pa.int16()): st.lists(st.integers(0, 2))}


@pytest.mark.parametrize("kind", list(TYPES), ids=str)
@settings(max_examples=10)
@given(data=st.data(), descending=st.booleans())
def test_rows_of_every_type_are_ordered_and_kept(
    kind: pa.DataType, data: st.DataObject, descending: bool
) -> None:
    """The order is that of Arrow, which knows nothing of windows, where Arrow has one."""
    values = data.draw(column(TYPES[kind], kind, 8))
    schema = pa.schema([pa.field("x", kind), pa.field("n", pa.int64())])
    by = (OrderColumn("x", descending), OrderColumn("n"))
    top = TopRows(5, by, False, schema, pa.schema([*schema, RANK]))
    rows = make_rows([("a",)] * 8, KEYS, pa.table({"x": values, "n": np.arange(8)}), order=range(8))
    contents = top.contents("best")
    first = contents.reduce(rows.values, np.arange(4), np.array([0]))
    second = contents.reduce(rows.values, np.arange(4, 8), np.array([0]))
    state = contents.merge(first, second)
    whole = contents.reduce(rows.values, np.arange(8), np.array([0]))
    assert [repr(c.to_pylist()) for c in state] == [repr(c.to_pylist()) for c in whole]
    found = state[1].to_pylist()[0]
    if not pa.types.is_nested(kind) and not pa.types.is_floating(kind):
        table = pa.table({"x": values, "n": np.arange(8)})
        direction = "descending" if descending else "ascending"
        wanted = table.sort_by([("x", direction), ("n", "ascending")]).column("n").to_pylist()[:5]
        assert found == wanted
