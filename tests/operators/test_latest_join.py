"""The latest join against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.joins.latest import LatestJoin
from anabranch.operators.timed import FrontierMove
from anabranch.records.bins import BinSet
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR
from tests.operators.join_harness import (
    BINS,
    COLUMNS,
    Event,
    Made,
    Step,
    Worker,
    contents,
    cut,
    draw_events,
    few_examples,
    rows_of,
    run,
    with_empty_steps,
)

How = Literal["inner", "left"]
SEEDS = st.integers(0, 10**9)
KINDS: st.SearchStrategy[How] = st.sampled_from(["inner", "left"])


def join(how: How) -> LatestJoin:
    return LatestJoin("j", COLUMNS, how)


def model(steps: Sequence[Step], how: How) -> list[Made]:
    """One row after the other: those from upstream, then the others, both by time."""
    newest: dict[str | None, Event] = {}
    made = []
    for number, step in enumerate(steps, start=1):
        for fired, events in ((True, step.fired), (False, step.data)):
            for row in sorted(events, key=lambda e: (e.time, 1 - e.side)):
                before = newest.get(row.key)
                if row.side:
                    if before is None or before.time <= row.time:
                        newest[row.key] = row
                elif before is not None or how == "left":
                    right = None if before is None else before.number
                    made.append(Made(number, row.key, row.number, right, (), row.time, fired))
    return made


@few_examples
@given(SEEDS, KINDS, st.integers(0, 14))
def test_it_gives_what_plain_python_gives_on_any_number_of_workers(
    seed: int, how: How, lateness: int
) -> None:
    steps = cut(draw_events(seed), seed, lateness, fired=True)
    outcome = run(join(how), steps)
    assert sorted(outcome.made, key=repr) == sorted(model(steps, how), key=repr)
    assert outcome.late == []
    for workers in (2, 5):
        assert run(join(how), steps, workers) == outcome


@few_examples
@given(SEEDS, SEEDS, KINDS)
def test_other_steps_give_the_same_if_rows_come_in_the_order_of_their_times(
    seed: int, other: int, how: How
) -> None:
    drawn = sorted(draw_events(seed), key=lambda e: (e.time, 1 - e.side))
    events = [row._replace(number=number) for number, row in enumerate(drawn, start=1)]
    one, two = (run(join(how), cut(events, cuts, 0)) for cuts in (seed, other))
    assert contents(one.made) == contents(two.made)


@few_examples
@given(SEEDS, KINDS)
def test_empty_steps_change_nothing(seed: int, how: How) -> None:
    steps = cut(draw_events(seed), seed, 5, fired=True)
    more, _ = with_empty_steps(steps, seed)
    assert contents(run(join(how), steps).made) == contents(run(join(how), more).made)


def test_without_times_a_row_sees_all_right_rows_of_its_step(tmp_path: Path) -> None:
    events = [Event(1, "a", 9, 1), Event(0, "a", 0, 2), Event(1, "a", 3, 3), Event(0, "b", 0, 4)]
    worker = Worker.alone(join("left"), tmp_path)
    rows = rows_of(Step(0, (), events), BinSet.every(BINS))
    assert rows is not None
    output = worker.operator.step(
        replace(rows, times=None), FrontierMove(EARLIEST, EARLIEST), worker.views(1, EARLIEST)
    ).output
    assert output is not None
    found = {(row["a"], row["b"]) for row in output.values.to_pylist()}
    assert found == {(2, 3), (4, None)}


def test_a_row_too_far_ahead_is_late_and_never_the_newest() -> None:
    far = Event(1, "a", TOO_FAR, 1)
    steps = [Step(0, (), [far, Event(0, "a", 3, 2)]), Step(END_OF_TIME)]
    outcome = run(join("left"), steps)
    assert outcome.late == [(1, 1)]
    assert [(row.left, row.right) for row in outcome.made] == [(2, None)]
