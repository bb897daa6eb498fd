"""The interval join against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.joins import OUTER_SIDES, JoinKind
from anabranch.operators.joins.columns import JoinColumns
from anabranch.operators.joins.interval import IntervalJoin
from anabranch.operators.timed import FrontierMove
from anabranch.records.bins import BinSet
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR
from anabranch.runs.due import NEVER
from tests.operators.join_harness import (
    BINS,
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
    made_of,
    rows_of,
    run,
    with_empty_steps,
)

SEEDS = st.integers(0, 10**9)
KINDS: st.SearchStrategy[JoinKind] = st.sampled_from(["inner", "left", "right", "full"])
BOUNDS = st.tuples(st.integers(-9, 9), st.integers(0, 12)).map(lambda b: (b[0], b[0] + b[1]))


def join(bounds: tuple[int, int], how: JoinKind) -> IntervalJoin:
    return IntervalJoin("j", COLUMNS, *bounds, how)


def model(steps: Sequence[Step], bounds: tuple[int, int], how: JoinKind) -> list[Made]:
    """Every pair in the interval, made of its later row; then the rows without a partner."""
    rows = accepted(steps)
    made, paired = [], set()
    for left_step, left, left_fired in rows:
        for right_step, right, right_fired in rows:
            if (left.side, right.side, left.key) != (0, 1, right.key):
                continue
            if not bounds[0] <= right.time - left.time <= bounds[1]:
                continue
            paired |= {left, right}
            step = max(left_step, right_step)
            last = [
                fired
                for number, fired in ((left_step, left_fired), (right_step, right_fired))
                if number == step
            ]
            time = max(left.time, right.time)
            made.append(Made(step, left.key, left.number, right.number, (), time, all(last)))
    for step, row, fired in rows:
        if row in paired or how not in ("full", "right" if row.side else "left"):
            continue
        due = first_step(steps, row.time + (-bounds[0] if row.side else bounds[1]) + 1)
        made.append(alone(max(step, due), row, fired=fired or due > step))
    return made


@few_examples
@given(SEEDS, BOUNDS, KINDS, st.integers(0, 14))
def test_it_gives_what_plain_python_gives_on_any_number_of_workers(
    seed: int, bounds: tuple[int, int], how: JoinKind, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    outcome = run(join(bounds, how), steps)
    assert sorted(outcome.made, key=repr) == sorted(model(steps, bounds, how), key=repr)
    assert outcome.late == late_rows(steps)
    assert outcome.left == 0
    for workers in (2, 5):
        assert run(join(bounds, how), steps, workers) == outcome


@few_examples
@given(SEEDS, SEEDS, BOUNDS, KINDS)
def test_other_steps_give_the_same_if_nothing_is_late(
    seed: int, other: int, bounds: tuple[int, int], how: JoinKind
) -> None:
    events = draw_events(seed)
    one, two = (run(join(bounds, how), cut(events, cuts, DISORDER)) for cuts in (seed, other))
    assert one.late == two.late == []
    assert contents(one.made) == contents(two.made)


@few_examples
@given(SEEDS, BOUNDS, KINDS, st.integers(0, 14))
def test_empty_steps_change_nothing(
    seed: int, bounds: tuple[int, int], how: JoinKind, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    more, numbers = with_empty_steps(steps, seed)
    plain, slow = run(join(bounds, how), steps), run(join(bounds, how), more)
    assert contents(plain.made) == contents(slow.made)
    assert plain.late == sorted((numbers[step - 1], number) for step, number in slow.late)


def test_a_row_from_upstream_may_match_a_row_at_the_last_moment() -> None:
    waiting, partner = Event(0, "a", 10, 1), Event(1, "a", 15, -2)
    steps = [Step(0, (), [waiting]), Step(12), Step(40, [partner]), Step(END_OF_TIME)]
    outcome = run(join((0, 5), "left"), steps)
    assert outcome.made == [Made(3, "a", 1, -2, (), 15, True)]


def test_only_rows_that_may_come_out_alone_hold_the_frontier(tmp_path: Path) -> None:
    left, right = Event(0, "a", 10, 1), Event(1, "a", 12, 2)
    expected: dict[JoinKind, int] = {"inner": NEVER, "right": NEVER, "left": 15, "full": 15}
    for how, waiting in expected.items():
        worker = Worker.alone(join((0, 5), how), tmp_path / how)
        worker.take(1, Step(0, (), [left]), EARLIEST)
        assert worker.hold.min() == waiting, how
        # A match leaves nothing to wait for.
        worker.take(2, Step(5, (), [right]), 0)
        assert worker.hold.min() == NEVER, how


def test_the_frontier_of_its_output_lags_by_the_longest_wait() -> None:
    lags = {how: join((-3, 8), how).lag_us for how in OUTER_SIDES}
    assert lags == {"inner": 0, "left": 8, "right": 3, "full": 8}
    assert join((-9, -4), "left").lag_us == 0


def test_a_row_too_far_ahead_is_late() -> None:
    far = Event(0, "a", TOO_FAR, 1)
    outcome = run(join((0, 5), "full"), [Step(0, (), [far]), Step(END_OF_TIME)])
    assert (outcome.made, outcome.late) == ([], [(1, 1)])


def test_a_side_may_have_nothing_but_its_key(tmp_path: Path) -> None:
    bare = JoinColumns(
        COLUMNS.left, pa.schema([]), pa.schema(list(OUTPUT)[:3]), COLUMNS.origins[:3]
    )
    rows = rows_of(Step(0, (), [Event(1, "a", 3, 1), Event(0, "a", 4, 2)]), BinSet.every(BINS))
    worker = Worker.alone(IntervalJoin("j", bare, -5, 5, "full"), tmp_path)
    output = worker.step(1, rows, FrontierMove(EARLIEST, 0)).output
    assert output is not None
    assert output.values.to_pylist() == [{"k": "a", "a": 2, "x": "x2"}]


def test_the_copies_of_a_row_in_a_self_join_have_one_order_but_their_matches_do_not(
    tmp_path: Path,
) -> None:
    events = [Event(side, "a", time, time) for time in (1, 2, 3) for side in (0, 1)]
    rows = rows_of(Step(0, (), events), BinSet.every(BINS))
    assert rows is not None
    orders = []
    shuffles = ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2])
    for number, places in enumerate(map(np.array, shuffles)):
        worker = Worker.alone(join((-1, 1), "full"), tmp_path / str(number))
        output = worker.step(1, rows.take(places), FrontierMove(EARLIEST, 0)).output
        assert output is not None
        orders.append(made_of(1, output))
    assert len(orders[0]) == 7
    assert orders[0] == orders[1] == orders[2]
