"""The window join against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.joins import JoinKind, Origin
from anabranch.operators.joins.columns import JoinColumns
from anabranch.operators.joins.windowed import WindowJoin
from anabranch.operators.windows.panes import Panes
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.runs.due import NEVER
from tests.operators.join_harness import (
    COLUMNS,
    DISORDER,
    OUTPUT,
    Event,
    Made,
    Step,
    Worker,
    accepted,
    alone,
    contents,
    cut,
    draw_events,
    few_examples,
    first_step,
    late_rows,
    run,
    with_empty_steps,
)

SEEDS = st.integers(0, 10**9)
KINDS: st.SearchStrategy[JoinKind] = st.sampled_from(["inner", "left", "right", "full"])
TIMESTAMP = pa.timestamp("us", tz="UTC")
WINDOWED = JoinColumns(
    COLUMNS.left,
    COLUMNS.right,
    pa.schema([*OUTPUT, ("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]),
    (*COLUMNS.origins, Origin("window", 0), Origin("window", 1)),
)


@st.composite
def panes(draw: st.DrawFn) -> Panes:
    every = draw(st.integers(1, 8))
    length = every if draw(st.booleans()) else draw(st.integers(every, 14))
    return Panes(length, every, draw(st.integers(-5, 5)))


def join(windows: Panes, how: JoinKind) -> WindowJoin:
    return WindowJoin("j", WINDOWED, windows, how)


def moment(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)


def windows_with(windows: Panes, time: int) -> list[int]:
    """The ends of all windows that hold a time, found by trying all."""
    starts = (windows.offset + windows.every * i for i in range(-200, 200))
    return [start + windows.length for start in starts if 0 <= time - start < windows.length]


def model(steps: Sequence[Step], windows: Panes, how: JoinKind) -> list[Made]:
    """Each window's rows of each key, side by side."""
    cells: dict[tuple[int, str | None], list[Event]] = {}
    for _, row, _ in accepted(steps):
        for end in windows_with(windows, row.time):
            cells.setdefault((end, row.key), []).append(row)
    made = []
    for (end, key), rows in cells.items():
        step, more = first_step(steps, end), (moment(end - windows.length), moment(end))
        lefts, rights = ([row for row in rows if row.side == side] for side in (0, 1))
        made += [
            Made(step, key, left.number, right.number, more, end - 1, True)
            for left in lefts
            for right in rights
        ]
        if not rights and how in ("left", "full"):
            made += [alone(step, row, *more, time=end - 1, fired=True) for row in lefts]
        if not lefts and how in ("right", "full"):
            made += [alone(step, row, *more, time=end - 1, fired=True) for row in rights]
    return made


@few_examples
@given(SEEDS, panes(), KINDS, st.integers(0, 14))
def test_it_gives_what_plain_python_gives_on_any_number_of_workers(
    seed: int, windows: Panes, how: JoinKind, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    outcome = run(join(windows, how), steps)
    assert sorted(outcome.made, key=repr) == sorted(model(steps, windows, how), key=repr)
    assert outcome.late == late_rows(steps)
    assert outcome.left == 0
    for workers in (2, 5):
        assert run(join(windows, how), steps, workers) == outcome


@few_examples
@given(SEEDS, SEEDS, panes(), KINDS)
def test_other_steps_give_the_same_if_nothing_is_late(
    seed: int, other: int, windows: Panes, how: JoinKind
) -> None:
    events = draw_events(seed)
    one, two = (run(join(windows, how), cut(events, cuts, DISORDER)) for cuts in (seed, other))
    assert one.late == two.late == []
    assert contents(one.made) == contents(two.made)


@few_examples
@given(SEEDS, panes(), KINDS, st.integers(0, 14))
def test_empty_steps_change_nothing(
    seed: int, windows: Panes, how: JoinKind, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    more, numbers = with_empty_steps(steps, seed)
    plain, slow = run(join(windows, how), steps), run(join(windows, how), more)
    assert contents(plain.made) == contents(slow.made)
    assert plain.late == sorted((numbers[step - 1], number) for step, number in slow.late)


def test_a_row_holds_the_frontier_before_each_of_its_windows(tmp_path: Path) -> None:
    worker = Worker.alone(join(Panes(10, 4), "left"), tmp_path)
    worker.take(1, Step(0, (), [Event(0, "a", 5, 1)]), EARLIEST)
    # Its windows are [-4, 6), [0, 10) and [4, 14).
    assert worker.hold.min() == 5
    worker.take(2, Step(9), 0)
    assert worker.hold.min() == 9
    worker.take(3, Step(10), 9)
    assert worker.hold.min() == 13
    worker.take(4, Step(END_OF_TIME), 10)
    assert worker.hold.min() == NEVER


def test_output_may_leave_the_window_out() -> None:
    rows = [Event(0, "a", 5, 1), Event(1, "a", 7, 2), Event(1, "a", 12, 3)]
    bare = WindowJoin("j", COLUMNS, Panes(10, 10), "inner")
    outcome = run(bare, [Step(0, (), rows), Step(END_OF_TIME)])
    assert outcome.made == [Made(2, "a", 1, 2, (), 9, True)]
