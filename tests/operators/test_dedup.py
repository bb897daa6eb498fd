"""``dedup`` against plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.dedup import Dedup, first_rows
from anabranch.operators.rows import Rows
from anabranch.records.times import END_OF_TIME, TOO_FAR
from tests.operators.join_harness import (
    DISORDER,
    Event,
    Made,
    Outcome,
    Step,
    alone,
    contents,
    cut,
    draw_events,
    few_examples,
    in_order,
    late_rows,
    run,
    taken,
    with_empty_steps,
)

SEEDS = st.integers(0, 10**9)
WITHIN = st.integers(0, 15)


def model(steps: Sequence[Step], within: int) -> list[Made]:
    """One row after the other: it passes unless one that has passed is near it."""
    passed: dict[str | None, list[int]] = {}
    made = []
    for number, row, fired in taken(steps):
        times = passed.setdefault(row.key, [])
        if all(abs(row.time - time) > within for time in times):
            times.append(row.time)
            made.append(alone(number, row, fired=fired))
    return made


def passed_rows(number: int, rows: Rows) -> list[Made]:
    """Rows that have passed are as they came."""
    rows = in_order(rows)
    assert rows.keys is not None
    assert rows.times is not None
    found = rows.values.to_pylist()
    assert [row["l_x"] for row in found] == [row["l_a"] and f"x{row['l_a']}" for row in found]
    assert [row["side"] for row in found] == [int(row["l_a"] is None) for row in found]
    keys, times = rows.keys.column(0).to_pylist(), rows.times.tolist()
    fired = [False] * len(rows) if rows.fired is None else rows.fired.tolist()
    return [
        Made(number, key, row["l_a"], row["r_b"], (), time, is_fired)
        for row, key, time, is_fired in zip(found, keys, times, fired, strict=True)
    ]


def dedup(steps: Sequence[Step], within: int, workers: int = 1) -> Outcome:
    return run(Dedup("once", within), steps, workers, passed_rows)


@few_examples
@given(SEEDS, WITHIN, st.integers(0, 14))
def test_it_gives_what_plain_python_gives_on_any_number_of_workers(
    seed: int, within: int, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    outcome = dedup(steps, within)
    assert sorted(outcome.made, key=repr) == sorted(model(steps, within), key=repr)
    assert outcome.late == late_rows(steps)
    assert outcome.left == 0
    for workers in (2, 5):
        assert dedup(steps, within, workers) == outcome


@few_examples
@given(SEEDS, SEEDS, WITHIN)
def test_other_steps_give_the_same_if_nothing_is_late(seed: int, other: int, within: int) -> None:
    events = draw_events(seed)
    one, two = (dedup(cut(events, cuts, DISORDER), within) for cuts in (seed, other))
    assert one.late == two.late == []
    assert contents(one.made) == contents(two.made)


@few_examples
@given(SEEDS, WITHIN, st.integers(0, 14))
def test_empty_steps_change_nothing(seed: int, within: int, lateness: int) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    more, numbers = with_empty_steps(steps, seed)
    plain, slow = dedup(steps, within), dedup(more, within)
    assert contents(plain.made) == contents(slow.made)
    assert plain.late == sorted((numbers[step - 1], number) for step, number in slow.late)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-30, 30)), max_size=30), st.integers(0, 12)
)
def test_the_first_rows_are_found_in_rounds(rows: list[tuple[int, int]], within: int) -> None:
    passed: list[int] = []
    for place, (key, time) in enumerate(rows):
        near = [p for p in passed if rows[p][0] == key and abs(rows[p][1] - time) <= within]
        if not near:
            passed.append(place)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    assert first_rows(columns[:, 0], columns[:, 1], within).tolist() == passed


def test_a_row_too_far_ahead_is_late() -> None:
    outcome = dedup([Step(0, (), [Event(0, "a", TOO_FAR, 1)]), Step(END_OF_TIME)], 5)
    assert (outcome.made, outcome.late) == ([], [(1, 1)])
