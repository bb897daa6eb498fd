"""The as-of join against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.joins.as_of import AsOfJoin
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.runs.due import NEVER
from tests.operators.join_harness import (
    COLUMNS,
    DISORDER,
    Event,
    Made,
    Step,
    Worker,
    accepted,
    contents,
    cut,
    draw_events,
    few_examples,
    first_step,
    late_rows,
    run,
    with_empty_steps,
)

How = Literal["inner", "left"]
SEEDS = st.integers(0, 10**9)
TOLERANCES = st.none() | st.integers(0, 9)
KINDS: st.SearchStrategy[How] = st.sampled_from(["inner", "left"])


def join(tolerance: int | None, how: How) -> AsOfJoin:
    return AsOfJoin("j", COLUMNS, tolerance, how)


def model(steps: Sequence[Step], tolerance: int | None, how: How) -> list[Made]:
    """Each left row with the last right row up to its time; of several at one time, the last."""
    rows = accepted(steps)
    made = []
    for _, left, _ in rows:
        if left.side:
            continue
        before = [
            (right.time, place, right.number)
            for place, (_, right, _) in enumerate(rows)
            if right.side and right.key == left.key and right.time <= left.time
        ]
        last = max(before, default=None)
        if last is not None and tolerance is not None and left.time - last[0] > tolerance:
            last = None
        if last is None and how == "inner":
            continue
        number = None if last is None else last[2]
        step = first_step(steps, left.time + 1)
        made.append(Made(step, left.key, left.number, number, (), left.time, True))
    return made


@few_examples
@given(SEEDS, TOLERANCES, KINDS, st.integers(0, 14))
def test_it_gives_what_plain_python_gives_on_any_number_of_workers(
    seed: int, tolerance: int | None, how: How, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    outcome = run(join(tolerance, how), steps)
    assert sorted(outcome.made, key=repr) == sorted(model(steps, tolerance, how), key=repr)
    assert outcome.late == late_rows(steps)
    for workers in (2, 5):
        assert run(join(tolerance, how), steps, workers) == outcome


@few_examples
@given(SEEDS, SEEDS, TOLERANCES, KINDS)
def test_other_steps_give_the_same_if_nothing_is_late(
    seed: int, other: int, tolerance: int | None, how: How
) -> None:
    events = draw_events(seed)
    one, two = (run(join(tolerance, how), cut(events, cuts, DISORDER)) for cuts in (seed, other))
    assert one.late == two.late == []
    assert contents(one.made) == contents(two.made)


@few_examples
@given(SEEDS, TOLERANCES, KINDS, st.integers(0, 14))
def test_empty_steps_change_nothing(
    seed: int, tolerance: int | None, how: How, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    more, numbers = with_empty_steps(steps, seed)
    plain, slow = run(join(tolerance, how), steps), run(join(tolerance, how), more)
    assert contents(plain.made) == contents(slow.made)
    assert plain.late == sorted((numbers[step - 1], number) for step, number in slow.late)


@few_examples
@given(SEEDS)
def test_only_the_last_right_row_of_a_key_is_held_without_a_tolerance(seed: int) -> None:
    steps = cut(draw_events(seed), seed, 5, fired=True)
    rights = {row.key for _, row, _ in accepted(steps) if row.side}
    assert run(join(None, "left"), steps).left == len(rights)
    assert run(join(3, "left"), steps).left == 0


def test_left_rows_hold_the_frontier_at_their_time(tmp_path: Path) -> None:
    worker = Worker.alone(join(None, "inner"), tmp_path)
    worker.take(1, Step(0, (), [Event(1, "a", 3, 1), Event(1, "b", 4, 2)]), EARLIEST)
    assert worker.hold.min() == NEVER
    worker.take(2, Step(0, (), [Event(0, "a", 9, 3), Event(0, "b", 7, 4)]), 0)
    assert worker.hold.min() == 7
    worker.take(3, Step(9), 0)
    assert worker.hold.min() == 9
    worker.take(4, Step(END_OF_TIME), 9)
    assert worker.hold.min() == NEVER
