"""Searches by key and time, against one row at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.timeline import Timeline

FAR = 2**61
TIMES = st.integers(-5, 5) | st.sampled_from([-FAR, FAR])
ROWS = st.lists(st.tuples(st.integers(0, 3), TIMES, st.integers(0, 2)), max_size=12)
ASKED = st.lists(st.tuples(st.integers(0, 4), TIMES, TIMES), max_size=6)


def arrays(rows: list[tuple[int, int, int]]) -> list[np.ndarray]:
    return list(np.array(rows, dtype=np.int64).reshape(-1, 3).T)


@given(ROWS, ASKED)
def test_searches_find_what_a_loop_finds(
    rows: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    line = Timeline(*arrays(rows))
    in_order = sorted(range(len(rows)), key=lambda place: rows[place])
    assert line.order.tolist() == in_order
    keys, first, last = arrays(asked)
    before = [sum((k, t) < (key, time) for k, t, _ in rows) for key, time, _ in asked]
    assert line.ahead(keys, first).tolist() == before
    until = [sum((k, t) <= (key, time) for k, t, _ in rows) for key, time, _ in asked]
    assert line.up_to(keys, first).tolist() == until
    places, found = line.between(keys, first, last)
    assert list(zip(places.tolist(), found.tolist(), strict=True)) == [
        (number, place)
        for number, (key, start, end) in enumerate(asked)
        for place in in_order
        if rows[place][0] == key and start <= rows[place][1] <= end
    ]
