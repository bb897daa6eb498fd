"""The arithmetic of windows, against one window and one row at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import merge_sessions

TIMES = st.integers(-60, 60)
FAR = 2**61


@st.composite
def panes(draw: st.DrawFn) -> Panes:
    every = draw(st.integers(1, 12))
    return Panes(draw(st.integers(every, 30)), every, draw(st.integers(-12, 12)))


def windows_with(shape: Panes, time: int) -> list[tuple[int, int]]:
    """Every window that holds a time, found by trying all."""
    starts = (shape.offset + shape.every * i for i in range(-200, 200))
    return [(s, s + shape.length) for s in starts if s <= time < s + shape.length]


@given(panes(), TIMES)
def test_a_pane_counts_for_the_windows_of_its_rows(shape: Panes, time: int) -> None:
    expected = windows_with(shape, time)
    pane = shape.pane_of(np.array([time]))
    assert pane[0] <= time < pane[0] + shape.pane
    assert shape.first_end(pane)[0] == min(end for _, end in expected)
    assert shape.last_end(pane)[0] == max(end for _, end in expected)


@given(panes(), st.lists(TIMES, max_size=12), st.lists(TIMES, min_size=1, max_size=5))
def test_each_window_of_each_row_closes_once_whatever_way_the_frontier_goes(
    shape: Panes, times: list[int], stops: list[int]
) -> None:
    starts = shape.pane_of(np.array(times, dtype=np.int64))
    frontiers = [-100, *sorted(stops)]
    closed = []
    for since, frontier in pairwise(frontiers):
        places, ends = shape.closing(starts, since, frontier)
        assert ((ends > since) & (ends <= frontier)).all()
        closed += list(zip(places.tolist(), ends.tolist(), strict=True))
    expected = [
        (place, end)
        for place, time in enumerate(times)
        for _, end in windows_with(shape, time)
        if -100 < end <= frontiers[-1]
    ]
    assert sorted(closed) == sorted(expected)


@given(panes(), st.lists(TIMES, min_size=1, max_size=6), TIMES)
def test_the_earliest_end_is_never_too_late(shape: Panes, times: list[int], frontier: int) -> None:
    starts = shape.pane_of(np.array(times, dtype=np.int64))
    open_ = starts[shape.last_end(starts) > frontier]
    if len(open_):
        least = shape.earliest_end(shape.last_end(open_).min(keepdims=True), frontier)[0]
        _, ends = shape.closing(open_, frontier, FAR)
        assert frontier < least <= ends.min()
        if shape.pane == shape.every:
            assert least == ends.min()


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-40, 40)), max_size=30)


def sessions_of(rows: list[tuple[int, int]], gap: int) -> list[tuple[int, int, int]]:
    """Sessions by going through the sorted rows of each key."""
    found: list[tuple[int, int, int]] = []
    for key, time in sorted(rows):
        if found and found[-1][0] == key and time < found[-1][2]:
            found[-1] = (key, found[-1][1], time + gap)
        else:
            found.append((key, time, time + gap))
    return found


@given(ROWS, st.integers(1, 15), st.integers(0, 30))
def test_sessions_are_those_of_the_sorted_rows_also_when_rows_come_in_two_parts(
    rows: list[tuple[int, int]], gap: int, cut: int
) -> None:
    def arrays(part: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        columns = np.array(part, dtype=np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]

    intervals = [(key, time, time + gap) for key, time in rows]
    first = merge_sessions(*arrays(intervals[:cut]))
    held = list(zip(first.keys, first.starts, first.ends, strict=True))
    both = merge_sessions(*arrays([*held, *intervals[cut:]]))
    found = list(zip(both.keys.tolist(), both.starts.tolist(), both.ends.tolist(), strict=True))
    assert found == sessions_of(rows, gap)
    for place, (key, start, end) in enumerate([*held, *intervals[cut:]]):
        inside = found[both.session_of[place]]
        assert inside[0] == key
        assert inside[1] <= start <= end <= inside[2]


@pytest.mark.parametrize("far", [-FAR, FAR])
def test_times_may_be_far_from_today(far: int) -> None:
    found = merge_sessions(
        np.array([0, 1, 1]), np.array([far, far, far + 5]), np.array([far + 9, far + 9, far + 14])
    )
    assert found.ends.tolist() == [far + 9, far + 14]
    assert Panes(10, 10).pane_of(np.array([far]))[0] == far // 10 * 10
