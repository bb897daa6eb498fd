"""Timers against a plain model: workers, other cuts of the frontier, steps without input."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.records.times import END_OF_TIME
from tests.operators.timer_model import Ordered, TimerModel
from tests.operators.timer_steps import Given, Steps, operator

BY_EVENT = ("tick", "back", "twin", "stop", "x", "y")
NAMES = (*BY_EVENT, "wind", "tock")


class Planned(NamedTuple):
    """A step: how far the frontier and the clock move, and its rows."""

    moved: int
    passed: int
    fired: list[Given]
    data: list[Given]


def rows(ops: tuple[str, ...], names: tuple[str, ...] = NAMES) -> st.SearchStrategy[list[Given]]:
    one = st.builds(
        Given,
        st.sampled_from("abcd"),
        st.integers(1, 80),
        st.sampled_from(ops),
        st.sampled_from(names),
        st.integers(1, 90),
    )
    return st.lists(one, max_size=6)


OPS = ("set", "set", "set", "step", "cancel", "count")
plans = st.lists(
    st.builds(Planned, st.integers(0, 30), st.integers(0, 20), rows(OPS), rows(OPS)), max_size=5
)
spreads = st.sampled_from([1, 2, 1 << 32])
PROCESS = operator(Ordered)


@settings(max_examples=60, deadline=None)
@given(plans, st.booleans(), spreads, st.sampled_from([1, 2, 5]))
def test_timers_fire_as_in_plain_python(
    steps: list[Planned], ended: bool, spread: int, workers: int
) -> None:
    model, until, now = TimerModel(spread), 1, 10_000
    with tempfile.TemporaryDirectory() as directory:
        run = Steps(PROCESS, Path(directory), workers=workers, spread=spread)
        for step in steps:
            until, now = until + step.moved, now + 1000 * step.passed
            found = run.step(step.data, until, fired=step.fired, now_ns=now)
            assert found == model.step(step.fired, step.data, until, now)
            for clock in ("event", "step"):
                assert run.timers(clock) == model.due(clock)
        if ended:
            found = run.step(until=END_OF_TIME)
            assert found == model.step([], [], END_OF_TIME, now)
            assert run.timers() == run.timers("step") == {}
        assert len(run.operator.overdue) == model.overdue


@settings(max_examples=40, deadline=None)
@given(plans, st.lists(st.booleans(), min_size=8, max_size=8), st.sampled_from([1, 5]))
def test_steps_without_input_change_nothing(
    steps: list[Planned], inserted: list[bool], workers: int
) -> None:
    # As in a pipeline: what a step reads does not move its own frontier, but that of the next.
    plain, more = [], []
    with tempfile.TemporaryDirectory() as directory:
        whole = Steps(PROCESS, Path(directory) / "plain", workers=1)
        cut = Steps(PROCESS, Path(directory) / "more", workers=workers)
        until, now = 1, 10_000
        for step, empty in zip(steps, inserted, strict=False):
            until, now = until + step.moved, now + 1000 * step.passed
            # Rows that notifications made come with the move of the frontier.
            if empty:
                more.append(cut.step((), until, fired=step.fired, now_ns=now))
            fired = [] if empty else step.fired
            more.append(cut.step(step.data, until, fired=fired, now_ns=now))
            plain.append(whole.step(step.data, until, fired=step.fired, now_ns=now))
        assert _flat(more) == _flat(plain)
        for clock in ("event", "step"):
            assert cut.timers(clock) == whole.timers(clock)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(rows(("set", "set", "cancel", "count"), BY_EVENT), min_size=1, max_size=3),
    st.lists(st.integers(1, 40), max_size=6),
    st.sampled_from([1, 2, 5]),
)
def test_how_far_the_frontier_moves_at_a_time_changes_nothing(
    data: list[list[Given]], moves: list[int], workers: int
) -> None:
    end = sum(moves) + 200
    with tempfile.TemporaryDirectory() as directory:
        whole = Steps(PROCESS, Path(directory) / "whole")
        cut = Steps(PROCESS, Path(directory) / "cut", workers=workers)
        for run in (whole, cut):
            for some in data:
                run.step(some, until=20)
        far = whole.step(until=end)
        near, until = [], 20
        for moved in moves:
            until += moved
            near.append(cut.step(until=until))
        near.append(cut.step(until=end))
        assert _by_key(_flat(near)) == _by_key(far)
        assert cut.timers() == whole.timers()


def _flat(parts: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return [made for part in parts for made in part]


def _by_key(rows: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each key in their order."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found
